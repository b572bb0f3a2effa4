"""What certainty is worth: precision-weighted teachers and an optimism bonus beside plain least squares, in all four
environments, with one encoder and with different ones. Resumable to the single run; `--envs CartPole-v1 ...` for some.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from cells import ROOT, curve, run_all

NAME = "options"
ENVS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "LunarLander-v3")
OPTIONS = {"plain": (), "precision": ("--weights", "precision"), "bonus": ("--explore", "bonus")}
SEEDS, MARKS, BEFORE = range(5), (100, 200, 600), 50


def measure(env: str, setting: str) -> list[dict[str, object]]:
    base = ["--env", env, "--setting", setting, "--learner", "least-squares", "--episodes", str(MARKS[-1])]
    cells = {f"{env}, {setting}, {option}": [*base, *extra] for option, extra in OPTIONS.items()}
    rows: list[dict[str, object]] = []
    for (cell, summaries), option in zip(run_all(NAME, cells, SEEDS).items(), OPTIONS, strict=True):
        curves = [curve(NAME, cell, seed, summary) for seed, summary in zip(SEEDS, summaries, strict=True)]
        at = {str(mark): [round(float(c[mark - BEFORE : mark].mean()), 1) for c in curves] for mark in MARKS}
        rows.append(
            {"env": env, "setting": setting, "option": option, "command": f"fedqhd train {' '.join(cells[cell])}",
             "commit": ", ".join(sorted({s["commit"] for s in summaries})), "seeds": list(SEEDS), "returns": at,
             "fit_alarms": [s["fit_alarms"] for s in summaries],
             "greedy_return": [round(s["greedy_return"], 1) for s in summaries],
             "cpu_seconds": [round(s["cpu_seconds"]) for s in summaries]}
        )  # fmt: skip
    return rows


def table(rows) -> str:
    lines = [
        "# What certainty is worth to least squares",
        "",
        f"Made by `make options`: five clients, mean of seeds 0 to {SEEDS[-1]} and their standard deviation. Training",
        f"return of the {BEFORE} episodes before episodes {', '.join(map(str, MARKS))}; greedy return at the end.",
        "*plain*: settings from `configs/`; *precision*: `--weights precision`; *bonus*: `--explore bonus`.",
        "",
        f"| | | {' | '.join(map(str, MARKS))} | greedy | alarms | CPU s | commit |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for r in rows:
        at = [f"{np.mean(r['returns'][str(m)]):.1f} ± {np.std(r['returns'][str(m)]):.1f}" for m in MARKS]
        lines.append(
            f"| {r['env']}, {r['setting']} | {r['option']} | {' | '.join(at)} | {np.mean(r['greedy_return']):.1f} "
            f"| {sum(r['fit_alarms'])} | {np.mean(r['cpu_seconds']):.0f} | `{r['commit']}` |"
        )
    commands = [r["command"] for r in rows]
    return "\n".join([*lines, "", "Each run by itself, with `--seed` 0 to 4:", "", "```", *commands, "```", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(ENVS), choices=list(ENVS))
    file = ROOT / "results" / f"{NAME}.json"
    rows = {(r["env"], r["setting"], r["option"]): r for r in (json.loads(file.read_text()) if file.exists() else [])}
    for env in parser.parse_args().envs:
        for setting in ("homogeneous", "heterogeneous"):
            rows |= {(env, setting, r["option"]): r for r in measure(env, setting)}
            ordered = sorted(rows.values(), key=lambda r: ENVS.index(r["env"]))
            file.write_text(json.dumps(ordered, indent=1) + "\n")
            file.with_suffix(".md").write_text(table(ordered))
    print(f"written to results/{NAME}.md and results/{NAME}.json")


if __name__ == "__main__":
    main()
