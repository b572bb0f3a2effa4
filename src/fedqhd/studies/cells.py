"""Studies of cells: runs that differ in their settings alone, each on the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedqhd.studies.markdown import commands_text, commits_of
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Row, Rows, Run, Study, column, command, commits, finished

Settings = Mapping[str, Any]
MEASURES = """*Final*: mean training return of all clients over the last 100 episodes, mean of the seeds. *Greedy*: 20
fresh episodes a client after training. CPU seconds are of one run."""


class CellStudy(Study):
    """A study that gives `name`, `about`, `title`, `text`, `seeds` and `cells`; rows and table are made of them."""

    title: ClassVar[str] = ""
    text: ClassVar[str] = ""
    """What stands below the title of the table."""
    cells: ClassVar[Mapping[str, Settings]] = {}
    """The settings of each cell by its name, over the environment's defaults."""
    promised: ClassVar[Mapping[str, float]] = {}
    """The final return that a cell should reach."""
    key: ClassVar[Sequence[str]] = ("cell",)

    def seeds_of(self, own: Settings) -> Sequence[int]:
        """The seeds of a cell."""
        return self.seeds

    def chosen(self, plan: Plan) -> dict[str, Settings]:
        return {cell: own for cell, own in self.cells.items() if plan.has(own)}

    def job(self, plan: Plan, cell: str, seed: int) -> Job:
        place = f"{self.name}/{cell.replace(', ', '-').replace(' ', '-').replace('/', '-')}"
        return plan.job(place, {**self.cells[cell], **plan.others}, seed, f"{cell}, seed {seed}", f"{self.name} {cell}")

    def jobs(self, plan: Plan) -> list[Job]:
        """First seeds first: a table that is stopped half-way has something everywhere."""
        wanted = [(s, c) for c, own in self.chosen(plan).items() for s in plan.seeds or self.seeds_of(own)]
        return [self.job(plan, cell, seed) for seed, cell in sorted(wanted, key=lambda pair: pair[0])]

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for cell, own in self.chosen(plan).items():
            seeds = sorted({*(plan.seeds or ()), *self.seeds_of(own)})
            if runs := finished(self.job(plan, cell, seed) for seed in seeds):
                rows.append(self.row(cell, {**own, **plan.others}, runs))
        return rows

    def row(self, cell: str, own: Settings, runs: Sequence[Run]) -> Row:
        """The row of a cell, of its finished runs."""
        measured = ("final_return", "greedy_return", "env_steps", "cpu_seconds")
        return {
            "cell": cell, "command": command(own), "seeds": [run.seed for run in runs], "commit": commits(runs),
            **{name: column(runs, name, 2) for name in measured},
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        """As `cells` has them; rows of cells that are no more come last."""
        cells = list(self.cells)
        return cells.index(row["cell"]) if row["cell"] in cells else len(cells)

    def table(self, rows: Rows) -> list[str]:
        """A line for each cell, and the commands behind them."""
        lines = [f"# {self.title or self.name}", "", f"{self.introduction(rows)} Commit `{commits_of(rows)}`.", ""]
        lines += [MEASURES, ""]
        lines += [
            f"| |{' promised |' if self.promised else ''} final | each seed | greedy | CPU seconds |",
            f"|---|{'---:|' if self.promised else ''}---:|---|---:|---:|",
        ]
        for row in rows:
            final = np.array(row["final_return"])
            each = ", ".join(f"{x:.1f}" for x in final)
            goal = f" {self.promised.get(row['cell'], '–')} |" if self.promised else ""
            lines.append(
                f"| {self.marked(row['cell'], row)} |{goal} {final.mean():.1f} | {each} "
                f"| {np.mean(row['greedy_return']):.1f} | {np.mean(row['cpu_seconds']):.0f} |"
            )
        commands = [f"{row['command']}   # {row['cell']}" for row in rows]
        return [*lines, *commands_text(commands, ", ".join(map(str, self.seeds)))]

    def introduction(self, rows: Rows) -> str:
        """The paragraph below the title."""
        return f"Made by `fedqhd reproduce {self.name}`: {self.text}"
