"""Least-squares learning: how soon it passes the return that the paper's FedQHD has after 600 episodes.

Twenty seeds of each environment also show that no run diverges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.core.presets import SETTINGS
from fedqhd.core.protocols import Array
from fedqhd.runs.outcome import LAST
from fedqhd.studies import paper
from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.markdown import commands_text
from fedqhd.studies.stats import iqm
from fedqhd.studies.study import Row, Rows, Run, column, command, commits

REPORTED = 10
"""The number of seeds that count for `passed` and the interquartile mean."""
SEEDS = {"homogeneous": range(20), "heterogeneous": range(REPORTED)}
"""Twenty seeds with one encoder show that no run diverges; with different encoders, only the reported seeds are run."""
WITHIN = {"CartPole-v1": 200, "Acrobot-v1": 200, "MountainCar-v0": 200, "LunarLander-v3": 400}
"""The number of episodes within which to pass the return that the paper's FedQHD has after 600."""


def goal_of(env: str, setting: str) -> float:
    """Return the return of the paper's FedQHD after 600 episodes."""
    published = paper.final_return(paper.FEDQHD, env, setting)
    assert published
    return published["mean"]


def passed(curves: Array, goal: float) -> int | None:
    """Return the first episode at which the mean of the last LAST episodes exceeds a goal, or None if it never does.

    Args:
        curves: The returns of each seed, averaged over clients, (seeds, episodes); their interquartile mean counts.
        goal: The return to exceed.
    """
    total = np.cumsum(np.pad(curves, ((0, 0), (1, 0))), axis=1)
    above = np.flatnonzero(iqm((total[:, LAST:] - total[:, :-LAST]) / LAST, axis=0) > goal)
    return int(above[0]) + LAST if len(above) else None


class ClosedForm(CellStudy):
    """All four environments, with one encoder and with different ones."""

    name = "closed-form"
    rank = 11
    about = "least squares against the paper: how soon its return is passed, and that no run diverges"
    hours = 1.6
    key = ("env", "setting")
    cells = {  # noqa: RUF012
        f"{env}, {setting}": {"env": env, "setting": setting, "learner": "least-squares", "episodes": WITHIN[env]}
        for env, setting in product(WITHIN, SETTINGS)
    }

    def seeds_of(self, settings: Settings) -> Sequence[int]:
        return SEEDS[settings["setting"]]

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return len(self.seeds_of(row))

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        goal = goal_of(settings["env"], settings["setting"])
        reported = [run for run in runs if run.seed < REPORTED]
        last = column(runs, "final_return", 1)
        return {
            "env": settings["env"], "setting": settings["setting"], "command": command(settings),
            "commit": commits(runs), "seeds": [run.seed for run in runs], "paper": goal,
            "episodes": settings["episodes"], "passed_at": passed(np.stack([run.curve() for run in reported]), goal),
            "iqm": round(float(iqm(np.array(last[: len(reported)]))), 1), "last_100": last,
            "greedy_return": column(runs, "greedy_return", 1), "fit_alarms": column(runs, "fit_alarms"),
            "cpu_seconds": column(runs, "cpu_seconds", 0),
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        return list(self.cells).index(f"{row['env']}, {row['setting']}")

    def table(self, rows: Rows) -> list[str]:
        lines = [
            "# Least squares: the paper's return, and how soon",
            "",
            "Made by `fedqhd reproduce closed-form`: five clients, `--learner least-squares`, settings from "
            "`configs/`. *Passed at*:",
            "the first episode by which the interquartile mean over seeds 0 to 9 of the last 100 training episodes is",
            "above what the paper's FedQHD has after 600. The worst seed and the alarms are of all seeds",
            "run: 0 to 19 with one encoder, 0 to 9 with different ones.",
            "",
            "| | the paper | passed at | goal | IQM of the last 100 | worst seed | greedy | alarms | CPU s | commit |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
        ]
        for r in rows:
            label = self.marked(f"{r['env']}, {r['setting']}", r)
            lines.append(
                f"| {label} | {r['paper']} | {r['passed_at'] or 'not'} "
                f"| {r['episodes']} | {r['iqm']} | {min(r['last_100'])} | {np.mean(r['greedy_return']):.1f} "
                f"| {sum(r['fit_alarms'])} | {np.mean(r['cpu_seconds']):.0f} | `{r['commit']}` |"
            )
        done = {f"{r['env']}, {r['setting']}" for r in rows}
        if missing := [cell for cell in self.cells if cell not in done]:
            lines += ["", f"Not measured yet: {'; '.join(missing)}."]
        return [*lines, *commands_text([r["command"] for r in rows], "as above")]
