"""The value of uncertainty estimates: precision-weighted teachers and an optimism bonus beside plain least squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.core.presets import SETTINGS
from fedqhd.studies.catalogue.closed_form import WITHIN
from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.markdown import commands_text
from fedqhd.studies.study import Row, Rows, Run, column, command, commits

OPTIONS = {"plain": {}, "precision": {"weights": "precision"}, "bonus": {"explore": "bonus"}}
MARKS, BEFORE = (100, 200, 600), 50
"""The episodes at which returns are measured, and how many episodes before each are averaged."""


def returns_at(run: Run, mark: int) -> float:
    """Return the mean training return of the BEFORE episodes before an episode, or before the end of a shorter run."""
    return round(float(run.curve()[:mark][-BEFORE:].mean()), 1)


class Options(CellStudy):
    """All four environments, with one encoder and with different ones."""

    name = "options"
    rank = 13
    about = "what certainty is worth to least squares: precision weights and an optimism bonus"
    hours = 2.6
    seeds = range(5)
    key = ("env", "setting", "option")
    cells = {  # noqa: RUF012
        f"{env}, {setting}, {option}": {
            "env": env, "setting": setting, "learner": "least-squares", "episodes": MARKS[-1], **more,
        }
        for env, setting, (option, more) in product(WITHIN, SETTINGS, OPTIONS.items())
    }  # fmt: skip

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        return {
            "env": settings["env"], "setting": settings["setting"], "option": cell.split(", ")[-1],
            "command": command(settings), "commit": commits(runs), "seeds": [run.seed for run in runs],
            "returns": {str(mark): [returns_at(run, mark) for run in runs] for mark in MARKS},
            "fit_alarms": column(runs, "fit_alarms"), "greedy_return": column(runs, "greedy_return", 1),
            "cpu_seconds": column(runs, "cpu_seconds", 0),
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        return list(self.cells).index(f"{row['env']}, {row['setting']}, {row['option']}")

    def table(self, rows: Rows) -> list[str]:
        lines = [
            "# What certainty is worth to least squares",
            "",
            f"Made by `fedqhd reproduce options`: five clients, mean of seeds 0 to {self.seeds[-1]} and their standard "
            "deviation. Training",
            f"return of the {BEFORE} episodes before episodes {', '.join(map(str, MARKS))}; greedy return at the end.",
            "*plain*: settings from `configs/`; *precision*: `--weights precision`; *bonus*: `--explore bonus`.",
            "",
            f"| | | {' | '.join(map(str, MARKS))} | greedy | alarms | CPU s | commit |",
            "|---|---|---:|---:|---:|---:|---:|---:|---|",
        ]
        for r in rows:
            at = [f"{np.mean(r['returns'][str(m)]):.1f} ± {np.std(r['returns'][str(m)]):.1f}" for m in MARKS]
            lines.append(
                f"| {r['env']}, {r['setting']} | {self.marked(r['option'], r)} | {' | '.join(at)} "
                f"| {np.mean(r['greedy_return']):.1f} | {sum(r['fit_alarms'])} | {np.mean(r['cpu_seconds']):.0f} "
                f"| `{r['commit']}` |"
            )
        return [*lines, *commands_text([r["command"] for r in rows], "0 to 4")]
