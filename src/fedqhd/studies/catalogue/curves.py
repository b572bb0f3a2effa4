"""Learning curves of the runs of the main table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedqhd.runs.outcome import smooth
from fedqhd.studies.catalogue.main import MainCells, main_jobs, runs_of
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import cell_settings
from fedqhd.studies.stats import band
from fedqhd.studies.study import Row, Run

DRAWN = ("CartPole-v1", "LunarLander-v3")
"""The environments whose learning curves are in the paper. Others are drawn if their runs have finished."""
SMOOTH, EVERY = 20, 5
"""The number of episodes that a point averages, and the distance between two points."""


class Curves(MainCells):
    """Training returns over episodes, smoothed and averaged over clients, with an interval over seeds."""

    name = "curves"
    rank = 3
    about = "learning curves on CartPole and LunarLander, and of all other runs of the main table that are there"
    runs_from = "main"

    def jobs(self, plan: Plan) -> list[Job]:
        envs = [e for e in plan.envs if e in DRAWN] or plan.envs
        return main_jobs(replace(plan, presets=plan.presets[:1], envs=envs))

    def source_jobs(self, plan: Plan) -> list[Job]:
        return [*self.jobs(plan), *main_jobs(plan.with_all_seeds())]

    def rows(self, plan: Plan) -> list[Row]:
        found = ((preset, cell, runs_of(plan, preset, cell)) for preset in plan.presets for cell in plan.cells)
        return [{"preset": p, **cell_settings(c), "seeds": len(runs), **curve(runs)} for p, c, runs in found if runs]


def curve(runs: list[Run]) -> Row:
    """Return the points of a learning curve and its interval over the seeds of the runs."""
    every = [smooth(np.nanmean(run.returns(), axis=0), SMOOTH)[EVERY - 1 :: EVERY] for run in runs]
    values, low, high = band(np.array([y[: min(map(len, every))] for y in every]))
    rounded = {name: [round(float(v), 1) for v in y] for name, y in (("iqm", values), ("lo", low), ("hi", high))}
    return {"every": EVERY, **rounded}
