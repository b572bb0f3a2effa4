"""How many episodes each learner needs to pass the paper's 600-episode return of FedQHD, five clients with one encoder
or network: replay, online, least squares, and DQNs whose parameters are averaged. Resumable to the single run.
"""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import numpy as np
from cells import ROOT, curve, head, run_all
from closed_form import WITHIN, paper_return

NAME = "learners"
LEARNERS = {
    "least squares": ("--learner", "least-squares"),
    "replay": ("--learner", "replay"),
    "online": ("--learner", "online"),
    "DQN": ("--method", "fedavg-dqn"),
}
SEEDS, EPISODES, WINDOW = range(3), 600, 20


def passed(returns, goal: float) -> int | None:
    """The first episode by which the mean of the last WINDOW is above the goal."""
    above = np.flatnonzero(np.convolve(returns, np.full(WINDOW, 1 / WINDOW), "valid") > goal)
    return int(above[0]) + WINDOW if len(above) else None


def measure() -> list[dict[str, object]]:
    cells = {
        f"{env}, {learner}": ["--env", env, *flags, "--episodes", str(EPISODES)]
        for env in WITHIN
        for learner, flags in LEARNERS.items()
    }
    rows: list[dict[str, object]] = []
    for cell, summaries in run_all(NAME, cells, SEEDS).items():
        env, learner = cell.split(", ")
        goal = paper_return(env, "homogeneous")
        curves = [curve(NAME, cell, seed, summary) for seed, summary in zip(SEEDS, summaries, strict=True)]
        rows.append(
            {"env": env, "learner": learner, "command": f"fedqhd train {' '.join(cells[cell])}", "commit": head(),
             "seeds": list(SEEDS), "goal": goal, "passed_at": [passed(c, goal) for c in curves],
             "final_return": [round(s["final_return"], 1) for s in summaries],
             "cpu_seconds": [round(s["cpu_seconds"]) for s in summaries]}
        )  # fmt: skip
    return rows


def table(rows) -> str:
    lines = [
        "# Episodes to the paper's return",
        "",
        f"Made by `make learners`: five clients, one encoder or network, seeds 0 to {SEEDS[-1]}. *Passed at*: the",
        f"first episode by which the mean of the last {WINDOW} training episodes of all clients is above what the",
        f"paper's FedQHD has after 600, seed by seed (–: not within {EPISODES}). *Final*: mean of the last 100.",
        "",
        "| | the paper | learner | passed at | final | CPU s | commit |",
        "|---|---:|---|---|---:|---:|---|",
    ]
    for r in rows:
        at = ", ".join("–" if p is None else str(p) for p in r["passed_at"])
        lines.append(
            f"| {r['env']} | {r['goal']} | {r['learner']} | {at} | {np.mean(r['final_return']):.1f} "
            f"| {np.mean(r['cpu_seconds']):.0f} | `{r['commit']}` |"
        )
    commands = [r["command"] for r in rows]
    return "\n".join([*lines, "", "Each run by itself, with `--seed` 0 to 2:", "", "```", *commands, "```", ""])


def draw(rows) -> None:
    figure, axes = plt.subplots(1, len(WITHIN), figsize=(11, 2.6), sharex=True, sharey=True, layout="constrained")
    names = list(LEARNERS)[::-1]
    for ax, env in zip(axes, WITHIN, strict=True):
        own = [r for r in rows if r["env"] == env]
        for r in own:
            y, at = names.index(r["learner"]), [p for p in r["passed_at"] if p is not None]
            ax.plot(at, [y] * len(at), "k|", markersize=10)
            if missed := len(r["passed_at"]) - len(at):  # a mean of those that passed would flatter
                which = "no seed" if not at else f"{missed} of {len(r['passed_at'])} not"
                ax.text(10, y, f"{which} within {EPISODES}", va="center", fontsize=8, color="#a03000")
            else:
                ax.barh(y, np.mean(at), color="#0072b2" if r["learner"] == "least squares" else "#bbbbbb", height=0.6)
        ax.set(title=f"{env}, {own[0]['goal']:g}", yticks=range(len(names)), yticklabels=names, xlim=(0, EPISODES))
        ax.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("episodes a client until the paper's 600-episode return is passed", fontsize=10)
    figure.savefig(ROOT / "docs" / "images" / f"{NAME}.png", dpi=110)


def main() -> None:
    rows = measure()
    (ROOT / "results" / f"{NAME}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (ROOT / "results" / f"{NAME}.md").write_text(table(rows))
    draw(rows)
    print(f"written to results/{NAME}.md, results/{NAME}.json and docs/images/{NAME}.png")


if __name__ == "__main__":
    main()
