"""Learning curves of the runs of the main table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedqhd.federation.method import METHODS
from fedqhd.runs.outcome import smooth
from fedqhd.studies.catalogue.main import MainCells, main_jobs, runs_of
from fedqhd.studies.markdown import Rows, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import cell_settings
from fedqhd.studies.stats import band
from fedqhd.studies.study import Row, Run

DRAWN = ("CartPole-v1", "LunarLander-v3")
"""The environments whose learning curves are in the paper. Others are drawn if their runs have finished."""
SMOOTH, EVERY = 20, 5
"""The number of episodes that a point averages, and the distance between two points."""

HEADLINE = "LunarLander-v3"
PANELS = {"homogeneous": "one encoder or network", "heterogeneous": "a different encoder or network for each client"}
LABELS = {
    "fedqhd": "FedQHD", "independent-qhd": "clients alone", "fedavg-dqn": "FedAvg-DQN",
    "distilled-feddqn": "distilled DQNs", "truncated-fedavg-qhd": "truncated FedAvg",
}  # fmt: skip
"""The methods in the figure that heads the README, and what they are called there."""
LAYOUTS = {"": ((11, 4), (1, 2)), "-narrow": ((5, 7.5), (2, 1))}
"""The size in inches, and the rows and columns of panels, of each shape of that figure."""


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

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Draw the figure that heads the README, wide and, for phones, narrow."""
        found = select(rows, env=HEADLINE, preset="tuned")
        if not found:
            return []
        folder.mkdir(parents=True, exist_ok=True)
        return [headline(found, folder / f"headline{shape}.png", *LAYOUTS[shape]) for shape in LAYOUTS]


def headline(rows: Rows, path: Path, size: tuple[float, float], grid: tuple[int, int]) -> Path:
    """Draw the tuned methods on one environment, with bands.

    Args:
        rows: The rows of the environment.
        path: The file to write, which is also returned.
        size: The width and height in inches.
        grid: The numbers of rows and columns of panels.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(*grid, sharey=True)
    for axes, (setting, title) in zip(panels, PANELS.items(), strict=True):
        for r in (r for m in LABELS for r in select(rows, setting=setting, method=m)):
            if setting == "homogeneous" and r["method"] == "truncated-fedavg-qhd":
                continue  # with one encoder there is nothing to truncate: it is FedQHD
            style, x = METHODS.find(r["method"]).style, r["every"] * np.arange(1, len(r["iqm"]) + 1)
            dash = (0, style.dash) if style.dash else "-"
            label, width = LABELS[r["method"]], 3 if r["method"] == "fedqhd" else 1.6
            axes.plot(x, r["iqm"], color=style.color, ls=dash, lw=width, label=label)
            axes.fill_between(x, r["lo"], r["hi"], color=style.color, alpha=0.15, lw=0)
        axes.set_title(title, loc="left", fontsize=11)
        axes.set(xlabel="episodes of each client", xlim=(0, 400), ylim=(-320, 290))
        axes.axvline(100, color="#999999", lw=0.8, ls=":")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.34), fontsize=9)
    for axes in panels[:: grid[1]]:
        axes.set_ylabel(f"training return on {HEADLINE}")
    figure.savefig(path, dpi=130)
    return path


def curve(runs: list[Run]) -> Row:
    """Return the points of a learning curve and its interval over the seeds of the runs."""
    every = [smooth(np.nanmean(run.returns(), axis=0), SMOOTH)[EVERY - 1 :: EVERY] for run in runs]
    values, low, high = band(np.array([y[: min(map(len, every))] for y in every]))
    rounded = {name: [round(float(v), 1) for v in y] for name, y in (("iqm", values), ("lo", low), ("hi", high))}
    return {"every": EVERY, **rounded}
