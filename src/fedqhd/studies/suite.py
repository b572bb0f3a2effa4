"""The runs behind the paper's tables and figures, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedqhd.core.presets import PRESETS, TUNED
from fedqhd.runs.settings import SETTINGS
from fedqhd.studies.ablation import ANCHORS, CLIENTS, DIMENSIONS, MODES
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, METHODS, Cell, cells, job_config, seeds, settings


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


SCALES = (1, 2, 5, 20)
SCALED = ("CartPole-v1", "LunarLander-v3")
SCALED_EPISODES = 500
THREE = (0, 1, 2)
"""The seeds of everything but the main table, where none are given."""


def scaled(plan: Plan, cell: Cell, clients: int) -> dict[str, Any]:
    return {**settings("tuned", cell, plan.tuned), "episodes": SCALED_EPISODES, **plan.others, "clients": clients}


def scalability_job(plan: Plan, cell: Cell, clients: int, seed: int) -> Job:
    """FedQHD as tuned for five clients, with other numbers of them."""
    config = job_config(plan.out / "scalability", cell, seed, scaled(plan, cell, clients))
    return Job(f"{cell.env} {cell.setting}, N={clients}, seed {seed}", f"N={clients} {cell.name}", config)


def scalability_cells(plan: Plan) -> list[Cell]:
    return cells(["fedqhd"], [e for e in SCALED if e in plan.envs], plan.settings)


def scalability_jobs(plan: Plan) -> list[Job]:
    return [
        scalability_job(plan, cell, clients, seed)
        for seed in plan.seeds or THREE for clients in SCALES for cell in scalability_cells(plan)
    ]  # fmt: skip


TRAINED = {"D": DIMENSIONS, "m": [(D, m) for D, m in ANCHORS if m not in (384, 640, 768)]}
ABLATED = {
    "env": "CartPole-v1", "method": "fedqhd", "setting": "heterogeneous", "learner": "least-squares",
    "clients": CLIENTS, "episodes": 80, "round_episodes": 10, "anchor_source": "rollout", "lam": 1e-2,
}  # fmt: skip
"""Of the trained ablations; the analytic ones take from it what they need."""


def ablation_job(plan: Plan, D: int, m: int, mode: str, seed: int) -> Job:
    own = {**ABLATED, **plan.others, "dims": [D], "anchors": m, "compile": mode}
    cell = Cell("fedqhd", str(own["env"]), "heterogeneous")
    config = job_config(plan.out / "ablation", cell, seed, own)
    return Job(f"D={D} m={m} {mode}, seed {seed}", f"ablation {D} {m}", config)


def ablation_jobs(plan: Plan, over: str) -> list[Job]:
    return [
        ablation_job(plan, D, m, mode, seed) for seed in plan.seeds or THREE for D, m in TRAINED[over] for mode in MODES
    ]


DAMAGED = {
    "fedqhd": ("tuned", "fedqhd"),
    "fedqhd, as in the paper": ("paper", "fedqhd"),
    "dqn": ("tuned", "fedavg-dqn"),
}
"""Whose policies are damaged, side by side, with one encoder or network for all: preset and method. The paper's readout
is a sum of features of D = 10,000, ours as tuned the solution of equations in fewer."""
DAMAGED_SEEDS = 5
"""At the most, where none are given."""


def damaged_jobs(plan: Plan, env: str, model: str) -> list[Job]:
    preset, method = DAMAGED[model]
    cell = Cell(method, env, "homogeneous")
    return [main_job(plan, preset, cell, seed) for seed in plan.seeds or seeds(preset, cell)[:DAMAGED_SEEDS]]


def robustness_jobs(plan: Plan) -> list[Job]:
    models = [model for model, (preset, _) in DAMAGED.items() if preset in plan.presets]
    jobs = (job for env in plan.envs for model in models for job in damaged_jobs(plan, env, model))
    return sorted(jobs, key=lambda job: job.config.seed)
