"""Attack x aggregator x share of liars on CartPole with different encoders: what the honest clients reach.

Resumable to the single run: what results/robust.json has already is not run again (remove it to begin anew). Seed by
seed, so that what is done can be read at any time: the table says how many seeds it has. `--jobs 1` for one process.
"""

from __future__ import annotations

import argparse
import json
import logging
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np
from cells import ROOT, head

from fedqhd.runs.choices import AGGREGATORS, ATTACKS
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.runs.run import train
from fedqhd.ui.cli import make_parser

BASE = (
    "--env CartPole-v1 --setting heterogeneous --learner least-squares --dims 100 150 200 250 300 --anchors 300 "
    "--episodes 120 --eval-episodes 5"
)
SEEDS = (0, 1, 2)
LAST = 50
HELD = 0.95
COMMIT = head()
CELLS = [("none", 0.0), *((attack, share) for share in (0.2, 0.4) for attack in ATTACKS)]


def measure(attack: str, share: float, aggregate: str, seed: int) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    out = ROOT / "runs" / "robust" / f"{attack}-{share}-{aggregate}-{seed}"
    lying = f"--attack {attack} --liars {share}" if share else ""
    words = f"train {BASE} {lying} --aggregate {aggregate} --seed {seed} --out {out} --engine local".split()
    given = vars(make_parser().parse_args(words))
    config = resolve({k: v for k, v in given.items() if k in FIELDS})
    summary = train(config, resume=True)
    honest = [i for i in range(config.clients) if i not in summary.get("liars", [])]
    returns = training_returns(out, config.clients, config.episodes)[honest, -LAST:]
    return {
        "attack": attack, "share": share, "aggregate": aggregate, "seed": seed,
        "return": round(float(returns.mean()), 1),
        "greedy_return": round(float(np.mean([summary["greedy_return_per_client"][i] for i in honest])), 1),
        "cpu_seconds": round(summary["cpu_seconds"], 1), "liars": summary.get("liars", []),
        "left_out": summary["replies"]["left out"], "commit": COMMIT,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    found: dict[tuple[str, float, str], dict[int, float]] = {}
    for r in rows:
        found.setdefault((r["attack"], r["share"], r["aggregate"]), {})[r["seed"]] = r["return"]
    honest = found.get(("none", 0.0, "mean"), {})
    clean = np.mean(list(honest.values())) if honest else np.nan
    lines = [
        "# Attacks and aggregation",
        "",
        "Made by `make robust`: CartPole, five clients with different encoders (D from 100 to 300), 300 anchors, 120",
        f"episodes. Return: training, last {LAST} episodes, mean of the honest clients and of the seeds.",
        f"**Bold**: within 5 % of what the mean reaches on the same seeds when nobody lies ({clean:.1f} on all). In",
        f"brackets: seeds that were run, where it is not {len(SEEDS)}.",
        "",
        "| attack | liars | " + " | ".join(AGGREGATORS) + " |",
        "|---|---:|" + "---:|" * len(AGGREGATORS),
    ]
    for attack, share in CELLS:
        cells = []
        for aggregate in AGGREGATORS:
            seeds = found.get((attack, share, aggregate), {})
            mean = np.mean(list(seeds.values())) if seeds else np.nan
            same = np.mean([honest.get(seed, np.nan) for seed in seeds]) if seeds else np.nan
            text = f"**{mean:.1f}**" if mean >= HELD * same else f"{mean:.1f}" if seeds else "–"
            cells.append(text + (f" ({len(seeds)})" if 0 < len(seeds) < len(SEEDS) else ""))
        lines.append(f"| {attack} | {share:.0%} | " + " | ".join(cells) + " |")
    commits = ", ".join(f"`{c}`" for c in sorted({r["commit"] for r in rows}))
    command = f"fedqhd train {BASE} --attack ATTACK --liars 0.2 --aggregate AGGREGATOR --seed SEED"
    return "\n".join([*lines, "", f"Commit {commits}. A run by itself:", "", "```", command, "```", ""])


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    cell = CELLS.index((row["attack"], row["share"]))
    return row["seed"], cell, AGGREGATORS.index(row["aggregate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    wanted = parser.parse_args()
    file = ROOT / "results" / "robust.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    done = {(r["attack"], r["share"], r["aggregate"], r["seed"]) for r in rows}
    jobs = [(*cell, aggregate, seed) for seed in wanted.seeds for cell in CELLS for aggregate in AGGREGATORS]
    with ProcessPoolExecutor(wanted.jobs) as pool:
        for future in as_completed([pool.submit(measure, *job) for job in jobs if job not in done]):
            rows = sorted([*rows, future.result()], key=place)
            r = future.result()
            print(f"{r['attack']} {r['share']:.0%}, {r['aggregate']}, seed {r['seed']}: {r['return']}", flush=True)
            file.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
            file.with_suffix(".md").write_text(table(rows))
    print("results/robust.md and results/robust.json are complete")


if __name__ == "__main__":
    main()
