"""How many episodes each learner needs to pass the return that the paper's FedQHD has after 600.

Five clients with one encoder or network learn by replay, online, by least squares, or as DQNs whose parameters are
averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.protocols import Array
from fedqhd.studies.catalogue.closed_form import WITHIN, goal_of
from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.markdown import commands_text, select
from fedqhd.studies.study import Row, Rows, Run, column, command, commits

LEARNERS = {
    "least squares": {"learner": "least-squares"},
    "replay": {"learner": "replay"},
    "online": {"learner": "online"},
    "DQN": {"method": "fedavg-dqn"},
}
EPISODES, WINDOW = 600, 20


def passed(returns: Array, goal: float) -> int | None:
    """Return the first episode at which the mean of the last WINDOW returns exceeds a goal, or None."""
    above = np.flatnonzero(np.convolve(returns, np.full(WINDOW, 1 / WINDOW), "valid") > goal)
    return int(above[0]) + WINDOW if len(above) else None


class Learners(CellStudy):
    """A row for each learner and environment."""

    name = "learners"
    rank = 12
    about = "how many episodes each learner needs to the paper's return"
    hours = 2.1
    key = ("env", "learner")
    cells = {  # noqa: RUF012
        f"{env}, {learner}": {"env": env, **LEARNERS[learner], "episodes": EPISODES}
        for env, learner in product(WITHIN, LEARNERS)
    }

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        env, learner = cell.split(", ")
        goal = goal_of(env, "homogeneous")
        return {
            "env": env, "learner": learner, "command": command(settings), "commit": commits(runs),
            "seeds": [run.seed for run in runs], "goal": goal, "passed_at": [passed(run.curve(), goal) for run in runs],
            "final_return": column(runs, "final_return", 1), "cpu_seconds": column(runs, "cpu_seconds", 0),
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        return list(self.cells).index(f"{row['env']}, {row['learner']}")

    def table(self, rows: Rows) -> list[str]:
        lines = [
            "# Episodes to the paper's return",
            "",
            f"Made by `fedqhd reproduce learners`: five clients, one encoder or network, seeds 0 to {self.seeds[-1]}. "
            "*Passed at*: the",
            f"first episode by which the mean of the last {WINDOW} training episodes of all clients is above what the",
            f"paper's FedQHD has after 600, seed by seed (–: not within {EPISODES}). *Final*: mean of the last 100.",
            "",
            "| | the paper | learner | passed at | final | CPU s | commit |",
            "|---|---:|---|---|---:|---:|---|",
        ]
        for r in rows:
            at = ", ".join("–" if p is None else str(p) for p in r["passed_at"])
            lines.append(
                f"| {r['env']} | {r['goal']} | {self.marked(r['learner'], r)} | {at} "
                f"| {np.mean(r['final_return']):.1f} | {np.mean(r['cpu_seconds']):.0f} | `{r['commit']}` |"
            )
        return [*lines, *commands_text([r["command"] for r in rows], "0 to 2")]

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Draw a panel for each environment with a bar for each learner."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 2.6), layout="constrained")
        envs = [env for env in WITHIN if select(rows, env=env)]
        panels = figure.subplots(1, len(envs), sharex=True, sharey=True, squeeze=False)[0]
        names = list(LEARNERS)[::-1]
        for axes, env in zip(panels, envs, strict=True):
            here = select(rows, env=env)
            for r in here:
                y, at = names.index(r["learner"]), [p for p in r["passed_at"] if p is not None]
                axes.plot(at, [y] * len(at), "k|", markersize=10)
                if missed := len(r["passed_at"]) - len(at):  # a mean over the seeds that passed would look too good
                    which = "no seed" if not at else f"{missed} of {len(r['passed_at'])} not"
                    axes.text(10, y, f"{which} within {EPISODES}", va="center", fontsize=8, color="#a03000")
                else:
                    colour = "#0072b2" if r["learner"] == "least squares" else "#bbbbbb"
                    axes.barh(y, np.mean(at), color=colour, height=0.6)
            title = f"{env}, {here[0]['goal']:g}"
            axes.set(title=title, yticks=range(len(names)), yticklabels=names, xlim=(0, EPISODES))
            axes.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("episodes a client until the paper's 600-episode return is passed", fontsize=10)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "learners.png"
        figure.savefig(path, dpi=110)
        return [path]
