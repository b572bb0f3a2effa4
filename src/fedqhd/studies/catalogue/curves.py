"""Learning curves, of the main table's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedqhd.runs.outcome import smooth
from fedqhd.studies.catalogue.main import main_jobs, place_of, runs_of
from fedqhd.studies.main_table import meant
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import given
from fedqhd.studies.stats import band
from fedqhd.studies.study import Row, Run, Study

DRAWN = ("CartPole-v1", "LunarLander-v3")
"""The environments of which the paper draws learning curves; others are drawn where they have been run."""
SMOOTH, EVERY = 20, 5
"""Of a learning curve: episodes that a point is the mean of, and between two points."""


class Curves(Study):
    """The training return as it rises: smoothed, mean of the clients, interquartile mean and interval of the seeds."""

    name = "curves"
    rank = 3
    about = "learning curves on CartPole and LunarLander, and of all other runs of the main table that are there"
    shares = "main"
    key = ("preset", "method", "env", "setting")
    in_results = True
    in_all = True

    def jobs(self, plan: Plan) -> list[Job]:
        envs = [e for e in plan.envs if e in DRAWN] or plan.envs
        return main_jobs(replace(plan, presets=plan.presets[:1], envs=envs))

    def used(self, plan: Plan) -> list[Job]:
        return [*self.jobs(plan), *main_jobs(plan.complete())]

    def rows(self, plan: Plan) -> list[Row]:
        found = ((preset, cell, runs_of(plan, preset, cell)) for preset in plan.presets for cell in plan.cells)
        return [{"preset": p, **given(c), "seeds": len(runs), **curve(runs)} for p, c, runs in found if runs]

    def meant(self, row: Mapping[str, Any]) -> int:
        return meant(row)

    def order(self, row: Mapping[str, Any]) -> Any:
        return place_of(row)


def curve(runs: list[Run]) -> Row:
    """The points of a curve with its interval, over the seeds."""
    every = [smooth(np.nanmean(run.returns(), axis=0), SMOOTH)[EVERY - 1 :: EVERY] for run in runs]
    values, low, high = band(np.array([y[: min(map(len, every))] for y in every]))
    rounded = {name: [round(float(v), 1) for v in y] for name, y in (("iqm", values), ("lo", low), ("hi", high))}
    return {"every": EVERY, **rounded}
