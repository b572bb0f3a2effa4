"""The tuner: the same small search for every method, on seeds that are not reported.

Up to eight trials of a quarter of the usual length start from the settings in configs/. They change one setting after
another and keep what helps: the learner, the action repeat, the step, exploration, and how often clients federate. The
result must then beat the start again, on both seeds together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedqhd.core.config import Config
from fedqhd.core.files import write_bytes
from fedqhd.core.presets import PLAIN, TUNED, file_of, read_toml
from fedqhd.federation.method import method_of
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.studies import store
from fedqhd.studies.archive import Archive
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job, JobSeries
from fedqhd.studies.presets import Cell, cell_settings, plain, start
from fedqhd.studies.study import Study

SEEDS = (100, 101)
TRIALS = 8
"""The largest number of trials of a cell."""
LENGTH = 0.25
"""The length of a trial as a share of a whole run."""
REPEATS = {"CartPole-v1": (2, 1), "Acrobot-v1": (2, 1), "LunarLander-v3": (3, 2), "MountainCar-v0": (4, 2)}
"""Values of action_repeat to try: the first that differs from the present one."""

Settings = dict[str, Any]


def learner_lever(c: Config) -> Settings:
    """Return a change of how clients learn: that of their learner, or else another learner."""
    learner, _ = method_of(c).learner(0)
    usual = resolve({"env": c.env}, preset=PLAIN).learner
    return learner.other_learning(c) or {"learner": usual if usual != learner.name else "least-squares"}


def action_repeat_lever(c: Config) -> Settings:
    """Return another action repeat."""
    return {"action_repeat": next(r for r in REPEATS.get(c.env, (2, 1)) if r != c.action_repeat)}


def step(c: Config) -> Settings:
    """Return another step size, or another trace for least squares, which has no step."""
    learner, _ = method_of(c).learner(0)
    return learner.other_step(c)


def exploration(c: Config) -> Settings:
    """Return settings with which epsilon decays twice as fast, to at most the paper's final value of 0.001.

    The optimism bonus is not tried: it never ends, and a trial of a quarter of a run does not show its cost at the end.
    """
    return {"epsilon_decay": round(c.epsilon_decay**2, 4), "epsilon_end": min(c.epsilon_end, 0.001)}


def exchange(c: Config) -> Settings:
    """Return the method's other way to exchange, such as more frequent rounds."""
    return method_of(c).tuning_variant(c)


LEVERS = (learner_lever, action_repeat_lever, step, exploration, exchange)


def trial(plan: Plan, cell: Cell, seed: int, settings: Mapping[str, Any]) -> Job:
    """Return a short run of a cell with other settings."""
    full = plain({**settings, **plan.overrides})
    short = {**settings, **plan.overrides, "episodes": max(2, round(LENGTH * full.episodes))}
    name = f"{cell.env} {cell.method} {cell.setting}, seed {seed}"
    return plan.job(f"tune/{cell.source.name}", short, seed, name, f"tune {cell.name}")


def score(job: Job, summary: Mapping[str, Any]) -> float:
    """Return the mean of the greedy return and of the training return over the last third of a trial."""
    returns = training_returns(job.folder, summary["clients"], summary["episodes"])
    return float((np.nanmean(returns[:, -max(1, summary["episodes"] // 3) :]) + summary["greedy_return"]) / 2)


def search(plan: Plan, cell: Cell, results: Path) -> JobSeries:
    """Yield the trials of a cell, one after another, and write the chosen settings at the end."""
    best = first = start(cell)
    trials: list[dict[str, Any]] = []

    def note(job: Job, settings: Settings, summary: dict[str, Any] | None) -> float:
        value = float("-inf") if summary is None else score(job, summary)
        new = {k: v for k, v in settings.items() if k not in cell_settings(cell)}
        cost = round(summary["cpu_seconds"], 1) if summary else None
        trials.append({"seed": job.config.seed, "score": round(value, 2) if summary else None, "cpu_seconds": cost,
                       "commit": summary["commit"] if summary else None, "settings": new})  # fmt: skip
        return value

    def attempt(settings: Settings, seed: int) -> JobSeries:
        job = trial(plan, cell, seed, settings)
        summary = yield job
        values[seed, json.dumps(settings, sort_keys=True)] = note(job, settings, summary)

    values: dict[tuple[int, str], float] = {}

    def value(settings: Settings, seed: int) -> float:
        return values[seed, json.dumps(settings, sort_keys=True)]

    yield from attempt(first, SEEDS[0])
    for lever in LEVERS:
        changed = {**best, **lever(plain({**best, **plan.overrides}))}
        yield from attempt(changed, SEEDS[0])
        if value(changed, SEEDS[0]) > value(best, SEEDS[0]):
            best = changed
    if best != first:
        for settings in (first, best):
            yield from attempt(settings, SEEDS[1])
        if sum(value(best, s) for s in SEEDS) <= sum(value(first, s) for s in SEEDS):
            best = first
    write_choice(chosen_folder(plan, results), cell, best)
    write_record(results, cell, trials, best, plan.alteration)


def write_choice(folder: Path, cell: Cell, best: Settings) -> None:
    """Write the chosen settings of a cell to ENV.toml in a folder, in the table of its method and setting."""
    file = folder / file_of(cell.env)
    tables = read_toml(file) if file.exists() else {}
    chosen = {k: v for k, v in best.items() if k in FIELDS and k not in cell_settings(cell)}
    tables.setdefault(cell.method, {})[cell.setting] = chosen
    head = f"# Chosen by `fedqhd reproduce tune`, over configs/{file.name}; its trials are in results/tune.json.\n\n"
    write_bytes(file, (head + tomli_w.dumps(dict(sorted(tables.items())))).encode())


def chosen_folder(plan: Plan, results: Path) -> Path:
    """Return the folder to write choices to; those of altered trials never replace the settings of the package."""
    return results / "tuned" if plan.alterations and plan.tuned == TUNED else plan.tuned


def tuned_cells(results: Path) -> set[Cell]:
    """Return the cells whose trials are recorded in the result file."""
    return {Cell(r["method"], r["env"], r["setting"]) for r in store.read_rows(results, Tune.name)}


def write_record(results: Path, cell: Cell, trials: list[dict[str, Any]], best: Settings, alteration: str = "") -> None:
    """Write the trials of a cell and the chosen settings to the result file."""
    chosen = {k: v for k, v in best.items() if k not in cell_settings(cell)}
    store.merge(results, Tune(), [{**cell_settings(cell), "chosen": chosen, "trials": trials}], alteration)


class Tune(Study):
    """The search: a row for each cell, with its trials and the chosen settings, which are also in configs/tuned."""

    name = "tune"
    rank = 2
    about = "the settings of preset `tuned`: eight quarter-length trials a cell, on seeds that are not reported"
    hours = 1.9
    key = ("method", "env", "setting")
    in_results = True
    can_collect = False

    def untuned_cells(self, plan: Plan, results: Path) -> tuple[list[Cell], int]:
        """Return the cells that are not tuned yet, and how many are."""
        every = list(dict.fromkeys(c.source for c in plan.cells))
        before = tuned_cells(results)
        cells = [c for c in every if c not in before]
        return cells, len(every) - len(cells)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        _, done = self.untuned_cells(plan, results)
        before = [f"{done} cells are tuned already: see {store.file_of(results, self.name)}"] if done else []
        return [*before, f"the chosen settings are written to {chosen_folder(plan, results)}"]

    def all_series(self, plan: Plan, archive: Archive, results: Path) -> tuple[list[JobSeries], int]:
        cells, _ = self.untuned_cells(plan, results)
        return [archive.archiving(search(plan, cell, results), restore=True) for cell in cells], TRIALS * len(cells)

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # a row is one search, which has its own seeds

    def order(self, row: Mapping[str, Any]) -> Any:
        return row["env"], row["setting"], row["method"]
