"""The paper's ablations over D and m, without training and with it: results/ablation.json and figures in docs/images.

`--mode analytic` takes no training; `--mode trained` is resumable to the single run.
"""

from __future__ import annotations

import argparse
import json

from cells import ROOT, folder, head, run

from fedqhd.experiment.ablation import ANCHORS, CLIENTS, DIMENSIONS, MODES, Setting, analytic, slope, trained
from fedqhd.experiment.config import resolve
from fedqhd.experiment.reference import reference
from fedqhd.experiment.run import training_returns
from fedqhd.report.ablation import draw, of

NAME = "ablation"
CELLS = {"D": DIMENSIONS, "m": ANCHORS}
TRAINED = {"D": DIMENSIONS, "m": [(512, m) for m in (51, 128, 256, 512, 1024, 2048)]}
EPISODES = 80
ENV = "CartPole-v1"


def setting(seed: int, source: str) -> Setting:
    given = {"env": ENV, "setting": "heterogeneous", "clients": CLIENTS, "anchor_source": source, "seed": seed}
    return Setting.make(resolve(given), reference(ENV)[0])


def without_training(over: str, seeds, source: str):
    rows = []
    for seed in seeds:
        world = setting(seed, source)
        for D, m in CELLS[over]:
            rows += analytic(world, D, m)
            print(
                f"{over}, {source}, seed {seed}: D={D} m={m} gaps {[round(r['gap_rms'], 2) for r in rows[-2:]]}",
                flush=True,
            )
    return rows


def with_training(over: str, seeds, source: str):
    rows = []
    for seed in seeds:
        world = setting(seed, source)
        for D, m in TRAINED[over]:
            for mode in MODES:
                cell = f"{source} {mode} D={D} m={m}"
                arguments = ["--env", ENV, "--setting", "heterogeneous", "--learner", "least-squares"]
                arguments += ["--clients", CLIENTS, "--episodes", EPISODES, "--round-episodes", 10, "--dims", D]
                arguments += ["--anchors", m, "--anchor-source", source, "--compile", mode]
                summary = run(NAME, cell, [str(a) for a in arguments], seed)
                out = folder(NAME, cell, seed)
                rows.append(trained(out, world, summary, training_returns(out, CLIENTS, EPISODES)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("analytic", "trained"), default="analytic")
    parser.add_argument("--over", nargs="+", choices=("D", "m"), default=["D", "m"])
    parser.add_argument("--sources", nargs="+", default=["rollout"], choices=("rollout", "uniform", "mix"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    wanted = parser.parse_args()
    is_trained = wanted.mode == "trained"
    file = ROOT / "results" / f"{NAME}.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for source in wanted.sources:
        for over in wanted.over:
            rows = (with_training if is_trained else without_training)(over, wanted.seeds, source)
            key = f"{wanted.mode}, over {over}, {source} anchors"
            seeds = " ".join(map(str, wanted.seeds))
            command = (
                f"python benchmarks/ablation.py --mode {wanted.mode} --over {over} --sources {source} --seeds {seeds}"
            )
            slopes = (
                {f"{mode}, {v}": slope(of(rows, compile=mode), v) for mode in MODES for v in ("gap_rms", "gap_max")}
                if over == "D"
                else {}
            )
            kept = [{k: v for k, v in r.items() if k not in ("curve", "alone")} for r in rows]
            results[key] = {"command": command, "commit": head(), "slopes": slopes, "rows": kept}
            file.write_text(json.dumps(results, indent=1) + "\n")
            image = ROOT / "docs" / "images" / f"ablation-{over}-{wanted.mode}-{source}.png"
            draw(rows, over, image, is_trained=is_trained, title=f"{ENV}, {key}")
            print(f"{key}: written to results/{NAME}.json and {image.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
