"""Studies whose runs differ only in their settings; each combination of settings is a cell."""

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
    """A study of cells. A subclass sets `name`, `about`, `title`, `text`, `seeds` and `cells`, and needs no more."""

    title: ClassVar[str] = ""
    """The title of the table."""
    text: ClassVar[str] = ""
    """The introduction below the title."""
    cells: ClassVar[Mapping[str, Settings]] = {}
    """The settings of each cell by name, which replace those of the environment's file in configs/."""
    promised: ClassVar[Mapping[str, float]] = {}
    """The final return that a cell is promised to reach, by name; not all cells need one."""
    key: ClassVar[Sequence[str]] = ("cell",)

    def seeds_of(self, settings: Settings) -> Sequence[int]:
        """Return the seeds of a cell with these settings."""
        return self.seeds

    def chosen_cells(self, plan: Plan) -> dict[str, Settings]:
        """Return the cells that the plan asks for."""
        return {cell: settings for cell, settings in self.cells.items() if plan.includes(settings)}

    def job(self, plan: Plan, cell: str, seed: int) -> Job:
        """Return the run of a cell with one seed."""
        place = f"{self.name}/{cell.replace(', ', '-').replace(' ', '-').replace('/', '-')}"
        settings = {**self.cells[cell], **plan.overrides}
        return plan.job(place, settings, seed, f"{cell}, seed {seed}", f"{self.name} {cell}")

    def jobs(self, plan: Plan) -> list[Job]:
        """Return all runs, the first seeds of all cells first: if the study is stopped, no cell is empty."""
        wanted = [(s, c) for c, x in self.chosen_cells(plan).items() for s in plan.seeds or self.seeds_of(x)]
        return [self.job(plan, cell, seed) for seed, cell in sorted(wanted, key=lambda pair: pair[0])]

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for cell, settings in self.chosen_cells(plan).items():
            seeds = sorted({*(plan.seeds or ()), *self.seeds_of(settings)})
            if runs := finished(self.job(plan, cell, seed) for seed in seeds):
                rows.append(self.row(cell, {**settings, **plan.overrides}, runs))
        return rows

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        """Return the row of a cell.

        Args:
            cell: The name of the cell.
            settings: Its settings, with those of the plan.
            runs: Its finished runs.
        """
        measured = ("final_return", "greedy_return", "env_steps", "cpu_seconds")
        return {
            "cell": cell, "command": command(settings), "seeds": [run.seed for run in runs], "commit": commits(runs),
            **{name: column(runs, name, 2) for name in measured},
        }  # fmt: skip

    def order(self, row: Mapping[str, Any]) -> Any:
        """Sort rows in the order of `cells`; rows of cells that no longer exist come last."""
        cells = list(self.cells)
        return cells.index(row["cell"]) if row["cell"] in cells else len(cells)

    def table(self, rows: Rows) -> list[str]:
        """Return a table with a line for each cell, and the command of each cell."""
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
        """Return the paragraph below the title."""
        return f"Made by `fedqhd reproduce {self.name}`: {self.text}"
