"""Whether hypervectors that are kept as int8 cost any return: the same runs with float32, seed by seed. Resumable."""

from __future__ import annotations

import json

import numpy as np
from cells import ROOT, head, run_all

NAME = "features"
MEASURED = ("final_return", "greedy_return", "cpu_seconds")
ENVS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3")
LEARNERS = ("replay", "least-squares")
KEPT = ("int8", "float32")
SEEDS, EPISODES = range(10), 300


def measure() -> list[dict[str, object]]:
    cells = {
        f"{env}, {learner}, {kept}": f"--env {env} --learner {learner} --features {kept} --episodes {EPISODES}".split()
        for env in ENVS
        for learner in LEARNERS
        for kept in KEPT
    }
    rows: list[dict[str, object]] = []
    for cell, summaries in run_all(NAME, cells, SEEDS).items():
        env, learner, kept = cell.split(", ")
        row = {"env": env, "learner": learner, "features": kept, "command": f"fedqhd train {' '.join(cells[cell])}"}
        for key in MEASURED:
            row[key] = [round(s[key], 1) for s in summaries]
        rows.append({**row, "seeds": list(SEEDS), "commit": head()})
    return rows


def table(rows) -> str:
    lines = [
        "# Hypervectors kept as int8",
        "",
        f"Made by `make features`: five clients with one encoder, {EPISODES} episodes, settings from `configs/`, mean",
        f"of seeds 0 to {SEEDS[-1]}. *Difference*: int8 less float32, and its standard error over the seeds; one",
        "that is within twice that is what chance does. Return is that of the last 100 training episodes.",
        "",
        "| | learner | float32 | int8 | difference | greedy: float32 | int8 | CPU s: float32 | int8 |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for rounded, full in zip(rows[::2], rows[1::2], strict=True):
        lost = np.subtract(rounded["final_return"], full["final_return"])
        means = [np.mean(row[key]) for key in MEASURED for row in (full, rounded)]
        error = lost.std(ddof=1) / np.sqrt(len(lost))
        lines.append(
            f"| {full['env']} | {full['learner']} | {means[0]:.1f} | {means[1]:.1f} | {lost.mean():+.1f} ± {error:.1f} "
            f"| {means[2]:.1f} | {means[3]:.1f} | {means[4]:.0f} | {means[5]:.0f} |"
        )
    commands = [f"{row['command']}   # commit {row['commit']}" for row in rows]
    lines += ["", f"Each run by itself, with `--seed` 0 to {SEEDS[-1]}:", "", "```", *commands, "```", ""]
    return "\n".join(lines)


def main() -> None:
    rows = measure()
    file = ROOT / "results" / f"{NAME}.json"
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    file.with_suffix(".md").write_text(table(rows))
    print(f"written to results/{NAME}.md and results/{NAME}.json")


if __name__ == "__main__":
    main()
