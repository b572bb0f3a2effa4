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
LAM = 1e-2
ENV = "CartPole-v1"


def setting(seed: int, source: str, lam: float) -> Setting:
    given = {
        "env": ENV,
        "setting": "heterogeneous",
        "clients": CLIENTS,
        "anchor_source": source,
        "lam": lam,
        "seed": seed,
    }
    return Setting.make(resolve(given), reference(ENV)[0])


def without_training(over: str, seeds, source: str, lam: float):
    rows = []
    for seed in seeds:
        world = setting(seed, source, lam)
        for D, m in CELLS[over]:
            rows += analytic(world, D, m)
            print(
                f"{over}, {source}, seed {seed}: D={D} m={m} gaps {[round(r['gap_rms'], 2) for r in rows[-2:]]}",
                flush=True,
            )
    return rows


def with_training(over: str, seeds, source: str, lam: float):
    rows = []
    for seed in seeds:
        world = setting(seed, source, lam)
        for D, m in TRAINED[over]:
            for mode in MODES:
                cell = f"{source} {mode} D={D} m={m}" + ("" if lam == LAM else f" lam={lam:g}")
                arguments = ["--env", ENV, "--setting", "heterogeneous", "--learner", "least-squares"]
                arguments += ["--clients", CLIENTS, "--episodes", EPISODES, "--round-episodes", 10, "--dims", D]
                arguments += ["--anchors", m, "--anchor-source", source, "--compile", mode, "--lam", lam]
                summary = run(NAME, cell, [str(a) for a in arguments], seed)
                out = folder(NAME, cell, seed)
                rows.append(trained(out, world, summary, training_returns(out, CLIENTS, EPISODES)))
    return rows


def record(mode: str, over: str, source: str, lam: float, seeds) -> None:
    """One ablation: its rows, the slopes over D, and its figure."""
    rows = {"analytic": without_training, "trained": with_training}[mode](over, seeds, source, lam)
    key = f"{mode}, over {over}, {source} anchors, lam={lam:g}"
    options = f"--mode {mode} --over {over} --sources {source} --lam {lam:g} --seeds {' '.join(map(str, seeds))}"
    every = [(c, v, most) for c in MODES for v in ("gap_rms", "gap_max", "gap_everywhere_rms") for most in (512, 2048)]
    measures = every if over == "D" else []
    file = ROOT / "results" / f"{NAME}.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results[key] = {
        "command": f"python benchmarks/ablation.py {options}",
        "commit": head(),
        "slopes": {
            f"{c}, {v}, D up to {most}": slope([r for r in of(rows, compile=c) if r["D"] <= most], v)
            for c, v, most in measures
        },
        "rows": [{k: v for k, v in r.items() if k not in ("curve", "alone")} for r in rows],
    }
    file.write_text(json.dumps(results, indent=1) + "\n")
    suffix = "" if lam == LAM else f"-{lam:g}"
    image = ROOT / "docs" / "images" / f"ablation-{over}-{mode}-{source}{suffix}.png"
    draw(rows, over, image, is_trained=mode == "trained", title=f"{ENV}, {key}")
    print(f"{key}: written to results/{NAME}.json and {image.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("analytic", "trained"), default="analytic")
    parser.add_argument("--over", nargs="+", choices=("D", "m"), default=["D", "m"])
    parser.add_argument("--sources", nargs="+", default=["rollout"], choices=("rollout", "uniform", "mix"))
    parser.add_argument("--lam", type=float, default=LAM)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    wanted = parser.parse_args()
    for source in wanted.sources:
        for over in wanted.over:
            record(wanted.mode, over, source, wanted.lam, wanted.seeds)


if __name__ == "__main__":
    main()
