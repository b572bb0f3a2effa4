"""The main table of the paper: all methods, environments and settings, in both presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.presets import PRESETS
from fedqhd.studies import main_table
from fedqhd.studies.main_table import expected_seeds
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import Cell, cell_settings, cells, seeds, tuned
from fedqhd.studies.stats import describe
from fedqhd.studies.study import Row, Rows, Run, Study, command, finished

RUN_FIELDS = ("final_return", "greedy_return", "cpu_seconds", "wall_seconds", "env_steps", "commit")
"""The fields of each run's summary that its row contains."""
KEY = ("preset", "method", "env", "setting")


def main_job(plan: Plan, preset: str, cell: Cell, seed: int) -> Job:
    """Return one run of a cell."""
    name = f"{preset} {cell.env} {cell.source.method} {cell.setting}, seed {seed}"
    place = f"{preset}/{cell.source.name}"
    return plan.job(place, plan.run_settings(preset, cell), seed, name, f"{preset} {cell.source.name}")


def main_jobs(plan: Plan) -> list[Job]:
    """Return every run of the main table once, the first seeds first: if it is stopped, no cell is empty."""
    found: dict[Path, Job] = {}
    last = max((s for p in plan.presets for c in plan.cells for s in plan.seeds_of(p, c)), default=-1)
    for seed in range(last + 1):
        for preset in plan.presets:
            for cell in plan.cells:
                if seed in plan.seeds_of(preset, cell):
                    job = main_job(plan, preset, cell, seed)
                    found.setdefault(job.folder, job)
    return list(found.values())


def all_jobs(plan: Plan, preset: str, cell: Cell) -> list[Job]:
    """Return the runs of a cell: those of the plan's seeds, and those of all reported seeds, which may be finished."""
    every = sorted({*plan.seeds_of(preset, cell), *seeds(preset, cell)})
    return [main_job(plan, preset, cell, seed) for seed in every]


def runs_of(plan: Plan, preset: str, cell: Cell) -> list[Run]:
    """Return the finished runs of a cell."""
    return finished(all_jobs(plan, preset, cell))


@cache
def row_positions() -> dict[tuple[str, ...], int]:
    """Return the position in the result file of each preset, method, environment and setting."""
    return {(preset, *cell): k for k, (preset, cell) in enumerate(product(PRESETS, cells()))}


class MainCells(Study):
    """The base class of studies that have a row for each cell of the main table."""

    key = KEY
    in_results = True
    in_all = True

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return expected_seeds(row)

    def order(self, row: Mapping[str, Any]) -> Any:
        """Sort by preset, then as in the table; unknown rows come last."""
        return row_positions().get(tuple(row[k] for k in KEY), len(row_positions()))


class Main(MainCells):
    """The main table: a row for each cell, with its runs, including failed ones, and the command that repeats one."""

    name = "main"
    rank = 1
    about = "the main table: all methods, environments and settings, in both presets"
    hours = 9.3
    run_folders = PRESETS

    def jobs(self, plan: Plan) -> list[Job]:
        return main_jobs(plan)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        bare = [c for c in plan.cells if tuned(c, plan.tuned) is None] if "tuned" in plan.presets else []
        return (
            [f"{len(bare)} cells are not tuned yet and run with the settings from which tuning starts"] if bare else []
        )

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for preset, cell in product(plan.presets, plan.cells):
            jobs = all_jobs(plan, preset, cell)
            failed = [{"seed": job.config.seed, **f} for job in jobs if (f := job.failure())]
            runs = finished(jobs)
            if runs or failed:
                common = {"command": run_command(plan, preset, cell), "episodes": jobs[0].config.episodes}
                rows.append(main_row(preset, cell, common, runs, failed))
        return rows

    def table(self, rows: Rows) -> list[str]:
        return main_table.table(rows)

    def appendix(self, rows: Rows) -> list[str]:
        return main_table.commands(rows)


def run_command(plan: Plan, preset: str, cell: Cell) -> str:
    """Return the command of one run of a cell; a cell that is not tuned yet has no preset and lists all settings."""
    if preset != "tuned" or tuned(cell, plan.tuned) is not None:
        return command({**cell_settings(cell.source), **plan.overrides}, preset)
    return command(plan.run_settings(preset, cell))


def main_row(
    preset: str, cell: Cell, common: Mapping[str, Any], runs: Sequence[Run], failed: Sequence[Mapping[str, Any]]
) -> Row:
    """Return a row of the result file.

    Args:
        preset: The preset of the cell.
        cell: The cell.
        common: The "command" of one run, and its number of "episodes".
        runs: The finished runs of the cell.
        failed: The records of failed runs.
    """
    found = {"preset": preset, **cell_settings(cell)}
    kept = [{"seed": r.seed, **{k: r.summary[k] for k in RUN_FIELDS}} for r in runs]
    details = {"command": common["command"], "runs": kept, "failed": list(failed)}
    if not runs:
        return {**found, "learner": None, "seeds": 0, "episodes": common["episodes"], "commit": "", **details}

    def column(name: str) -> list[float]:
        return [run.summary[name] for run in runs]

    return {
        **found, "learner": runs[0].summary["learner"], "seeds": len(runs), "episodes": common["episodes"],
        "final_return": describe(column("final_return")), "greedy_return": describe(column("greedy_return")),
        "cpu_seconds": round(float(np.mean(column("cpu_seconds"))), 1),
        "wall_seconds": round(float(np.mean(column("wall_seconds"))), 1),
        "env_steps": round(float(np.mean(column("env_steps")))),
        "commit": ", ".join(sorted({run.summary["commit"] for run in runs})),
        **details,
    }  # fmt: skip
