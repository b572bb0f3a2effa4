"""Whether storing hypervectors as int8 instead of float32 lowers the return: the same runs with both, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.studies.catalogue.closed_form import WITHIN
from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.markdown import commands_text
from fedqhd.studies.study import Row, Rows, Run, column, command, commits

MEASURED = ("final_return", "greedy_return", "cpu_seconds")
LEARNERS = ("replay", "least-squares")
STORED_AS = ("int8", "float32")
EPISODES = 300


class Features(CellStudy):
    """Two learners in all four environments."""

    name = "features"
    rank = 14
    about = "what hypervectors kept as int8 cost in return, beside float32"
    hours = 0.9
    seeds = range(10)
    key = ("env", "learner", "features")
    cells = {  # noqa: RUF012
        f"{env}, {learner}, {stored}": {"env": env, "learner": learner, "features": stored, "episodes": EPISODES}
        for env, learner, stored in product(WITHIN, LEARNERS, STORED_AS)
    }

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        return {
            **{k: settings[k] for k in self.key}, "command": command(settings),
            **{k: column(runs, k, 1) for k in MEASURED}, "seeds": [run.seed for run in runs], "commit": commits(runs),
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        return list(self.cells).index(f"{row['env']}, {row['learner']}, {row['features']}")

    def table(self, rows: Rows) -> list[str]:
        lines = [
            "# Hypervectors kept as int8",
            "",
            f"Made by `fedqhd reproduce features`: five clients with one encoder, {EPISODES} episodes, settings from "
            "`configs/`, mean",
            f"of seeds 0 to {self.seeds[-1]}. *Difference*: int8 less float32, and its standard error over the seeds; "
            "one",
            "that is within twice that is what chance does. Return is that of the last 100 training episodes.",
            "",
            "| | learner | float32 | int8 | difference | greedy: float32 | int8 | CPU s: float32 | int8 |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        found = {(r["env"], r["learner"], r["features"]): r for r in rows}
        for env, learner in dict.fromkeys((r["env"], r["learner"]) for r in rows):
            rounded, full = (found.get((env, learner, stored)) for stored in STORED_AS)
            if rounded and full:
                lines.append(f"| {env} | {learner} | {' | '.join(self.compared(rounded, full))} |")
        commands = [f"{row['command']}   # commit {row['commit']}" for row in rows]
        return [*lines, *commands_text(commands, f"0 to {self.seeds[-1]}")]

    def compared(self, rounded: Mapping[str, Any], full: Mapping[str, Any]) -> list[str]:
        """Return the cells of a line of the table; the difference is over the seeds that both rows have."""
        both = [seed for seed in full["seeds"] if seed in rounded["seeds"]]
        mine, theirs = ([r["final_return"][r["seeds"].index(seed)] for seed in both] for r in (rounded, full))
        lost = np.subtract(mine, theirs)
        error = lost.std(ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else np.nan
        means = [np.mean(row[key]) for key in MEASURED for row in (full, rounded)]
        return [
            self.marked(f"{means[0]:.1f}", full), self.marked(f"{means[1]:.1f}", rounded),
            f"{lost.mean():+.1f} ± {error:.1f}", f"{means[2]:.1f}", f"{means[3]:.1f}", f"{means[4]:.0f}",
            f"{means[5]:.0f}",
        ]  # fmt: skip
