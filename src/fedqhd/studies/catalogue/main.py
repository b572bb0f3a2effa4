"""The paper's main table: all methods, environments and settings, in both presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.presets import PRESETS
from fedqhd.studies import main_table
from fedqhd.studies.main_table import meant
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import Cell, cells, given, seeds, tuned
from fedqhd.studies.stats import describe
from fedqhd.studies.study import Row, Rows, Run, Study, command, finished

KEPT = ("final_return", "greedy_return", "cpu_seconds", "wall_seconds", "env_steps", "commit")
"""Of the summary of each run."""
KEY = ("preset", "method", "env", "setting")


def main_job(plan: Plan, preset: str, cell: Cell, seed: int) -> Job:
    name = f"{preset} {cell.env} {cell.source.method} {cell.setting}, seed {seed}"
    place = f"{preset}/{cell.source.name}"
    return plan.job(place, plan.own(preset, cell), seed, name, f"{preset} {cell.source.name}")


def main_jobs(plan: Plan) -> list[Job]:
    """Every run of the main table once, first seeds first: a table stopped half-way has something everywhere."""
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
    """Those of the seeds asked for, and of those that may be there from before."""
    every = sorted({*plan.seeds_of(preset, cell), *seeds(preset, cell)})
    return [main_job(plan, preset, cell, seed) for seed in every]


def runs_of(plan: Plan, preset: str, cell: Cell) -> list[Run]:
    """The finished runs of a cell."""
    return finished(all_jobs(plan, preset, cell))


@cache
def places() -> dict[tuple[str, ...], int]:
    return {(preset, *cell): k for k, (preset, cell) in enumerate(product(PRESETS, cells()))}


def place_of(row: Mapping[str, Any]) -> int:
    """Where a row stands in the result file: presets first, then as in the table."""
    return places().get(tuple(row[k] for k in KEY), len(places()))


class Main(Study):
    """A row for each cell, with the runs behind it, the failed ones too, and the command that repeats one."""

    name = "main"
    rank = 1
    about = "the main table: all methods, environments and settings, in both presets"
    hours = 9.3
    key = KEY
    in_results = True
    in_all = True
    places = PRESETS

    def jobs(self, plan: Plan) -> list[Job]:
        return main_jobs(plan)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        bare = [c for c in plan.cells if tuned(c, plan.tuned) is None] if "tuned" in plan.presets else []
        return [f"{len(bare)} cells are not tuned yet and run with the settings tuning starts from"] if bare else []

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for preset, cell in product(plan.presets, plan.cells):
            jobs = all_jobs(plan, preset, cell)
            failed = [{"seed": job.config.seed, **f} for job in jobs if (f := job.failure())]
            runs = finished(jobs)
            if runs or failed:
                own = {"command": one_run(plan, preset, cell), "episodes": jobs[0].config.episodes}
                rows.append(main_row(preset, cell, own, runs, failed))
        return rows

    def meant(self, row: Mapping[str, Any]) -> int:
        return meant(row)

    def order(self, row: Mapping[str, Any]) -> Any:
        return place_of(row)

    def table(self, rows: Rows) -> list[str]:
        return main_table.table(rows)

    def appendix(self, rows: Rows) -> list[str]:
        return main_table.commands(rows)


def one_run(plan: Plan, preset: str, cell: Cell) -> str:
    """The command of one run of a cell; a cell that is not tuned yet runs with the settings tuning starts from."""
    known = preset != "tuned" or tuned(cell, plan.tuned) is not None
    return command({**given(cell.source), **plan.others}, preset) if known else command(plan.own(preset, cell))


def main_row(
    preset: str, cell: Cell, own: Mapping[str, Any], runs: Sequence[Run], failed: Sequence[Mapping[str, Any]]
) -> Row:
    """A row of the result file; `own` has the command of a run and its episodes."""
    found = {"preset": preset, **given(cell)}
    behind = {"command": own["command"], "runs": [{"seed": r.seed, **{k: r.summary[k] for k in KEPT}} for r in runs],
              "failed": list(failed)}  # fmt: skip
    if not runs:
        return {**found, "learner": None, "seeds": 0, "episodes": own["episodes"], "commit": "", **behind}

    def column(name: str) -> list[float]:
        return [run.summary[name] for run in runs]

    return {
        **found, "learner": runs[0].summary["learner"], "seeds": len(runs), "episodes": own["episodes"],
        "final_return": describe(column("final_return")), "greedy_return": describe(column("greedy_return")),
        "cpu_seconds": round(float(np.mean(column("cpu_seconds"))), 1),
        "wall_seconds": round(float(np.mean(column("wall_seconds"))), 1),
        "env_steps": round(float(np.mean(column("env_steps")))),
        "commit": ", ".join(sorted({run.summary["commit"] for run in runs})),
        **behind,
    }  # fmt: skip
