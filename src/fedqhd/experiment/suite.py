"""The runs behind the paper's tables and figures, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedqhd.experiment.config import SETTINGS
from fedqhd.experiment.pool import Job
from fedqhd.experiment.presets import ENVS, METHODS, PRESETS, TUNED, Cell, cells, job_config, seeds, settings


@dataclass(frozen=True)
class Plan:
    """What is asked for: all of the table, or a part of it."""

    presets: Sequence[str] = PRESETS
    methods: Sequence[str] = METHODS
    envs: Sequence[str] = ENVS
    settings: Sequence[str] = SETTINGS
    seeds: Sequence[int] | None = None
    """None: as many as each preset and method has."""
    out: Path = Path("runs/reproduce")
    tuned: Path = TUNED
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings that stand over all, for a smaller copy of the table."""

    @property
    def cells(self) -> list[Cell]:
        return cells(self.methods, self.envs, self.settings)

    def seeds_of(self, preset: str, cell: Cell) -> Sequence[int]:
        return seeds(preset, cell) if self.seeds is None else self.seeds

    def own(self, preset: str, cell: Cell) -> dict[str, Any]:
        """What a run of a cell is given, over the environment's defaults."""
        return {**settings(preset, cell, self.tuned), **self.others}


def main_job(plan: Plan, preset: str, cell: Cell, seed: int) -> Job:
    config = job_config(plan.out / preset, cell, seed, plan.own(preset, cell))
    name = f"{preset} {cell.env} {cell.source.method} {cell.setting}, seed {seed}"
    return Job(name, f"{preset} {cell.source.name}", config)


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
