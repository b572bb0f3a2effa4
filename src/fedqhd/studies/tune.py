"""The same small search for every method: eight trials of a quarter of the length, on seeds that are not reported.

Trials start from the settings in configs/ and pull one lever after the other, keeping what helps: how it learns, how
long an action is kept, the step, exploration, and how often it federates. What was found has to beat the start once
more, on a second seed.
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
from fedqhd.core.presets import PLAIN, TUNED, read_toml
from fedqhd.federation.method import method_of
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.studies import store
from fedqhd.studies.archive import Archive
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job, JobSeries
from fedqhd.studies.presets import Cell, given, plain, start
from fedqhd.studies.study import Study

SEEDS = (100, 101)
TRIALS = 8
LENGTH = 0.25
"""Of a trial, as a share of a run."""
REPEATS = {"CartPole-v1": (2, 1), "Acrobot-v1": (2, 1), "LunarLander-v3": (3, 2), "MountainCar-v0": (4, 2)}
"""Steps for which to keep an action: the first that is not kept so long already."""

Settings = dict[str, Any]


def how_it_learns(c: Config) -> Settings:
    """As its learner says: the environment's other learner, say, or where the Huber loss turns linear."""
    learner, _ = method_of(c).learner(0)
    usual = resolve({"env": c.env}, preset=PLAIN).learner
    return learner.other(c) or {"learner": usual if usual != learner.name else "least-squares"}


def kept_actions(c: Config) -> Settings:
    return {"action_repeat": next(r for r in REPEATS.get(c.env, (2, 1)) if r != c.action_repeat)}


def step(c: Config) -> Settings:
    """Of Adam or of TD. A fit has none: there it is how much of a target is the return that followed."""
    learner, _ = method_of(c).learner(0)
    return learner.other_step(c)


def exploration(c: Config) -> Settings:
    """Over in half the episodes, to the paper's floor. (Optimism, which never ends, is no lever: what that costs at the
    end of a run is not to be seen in its first quarter.)"""
    return {"epsilon_decay": round(c.epsilon_decay**2, 4), "epsilon_end": min(c.epsilon_end, 0.001)}


def exchange(c: Config) -> Settings:
    """As the method says: federate more often, say."""
    return method_of(c).tuning_variant(c)


LEVERS = (how_it_learns, kept_actions, step, exploration, exchange)


def trial(plan: Plan, cell: Cell, seed: int, own: Mapping[str, Any]) -> Job:
    full = plain({**own, **plan.others})
    short = {**own, **plan.others, "episodes": max(2, round(LENGTH * full.episodes))}
    name = f"{cell.env} {cell.method} {cell.setting}, seed {seed}"
    return plan.job(f"tune/{cell.source.name}", short, seed, name, f"tune {cell.name}")


def score(job: Job, summary: Mapping[str, Any]) -> float:
    """Half the training return of the last third, half the greedy one: the two that are reported."""
    returns = training_returns(job.folder, summary["clients"], summary["episodes"])
    return float((np.nanmean(returns[:, -max(1, summary["episodes"] // 3) :]) + summary["greedy_return"]) / 2)


def search(plan: Plan, cell: Cell, results: Path) -> JobSeries:
    """The trials of a cell; its choice is written when it is made."""
    best = first = start(cell)
    trials: list[dict[str, Any]] = []

    def note(job: Job, own: Settings, came: dict[str, Any] | None) -> float:
        value = float("-inf") if came is None else score(job, came)
        new = {k: v for k, v in own.items() if k not in given(cell)}
        cost = round(came["cpu_seconds"], 1) if came else None
        trials.append({"seed": job.config.seed, "score": round(value, 2) if came else None, "cpu_seconds": cost,
                       "commit": came["commit"] if came else None, "settings": new})  # fmt: skip
        return value

    def attempt(own: Settings, seed: int) -> JobSeries:
        job = trial(plan, cell, seed, own)
        came = yield job
        values[seed, json.dumps(own, sort_keys=True)] = note(job, own, came)

    values: dict[tuple[int, str], float] = {}

    def value(own: Settings, seed: int) -> float:
        return values[seed, json.dumps(own, sort_keys=True)]

    yield from attempt(first, SEEDS[0])
    for lever in LEVERS:
        changed = {**best, **lever(plain({**best, **plan.others}))}
        yield from attempt(changed, SEEDS[0])
        if value(changed, SEEDS[0]) > value(best, SEEDS[0]):
            best = changed
    if best != first:
        for own in (first, best):
            yield from attempt(own, SEEDS[1])
        if sum(value(best, s) for s in SEEDS) <= sum(value(first, s) for s in SEEDS):
            best = first
    write_choice(chosen_folder(plan, results), cell, best)
    write_record(results, cell, trials, best, plan.alteration)


def write_choice(folder: Path, cell: Cell, best: Settings) -> None:
    """configs/tuned/ENV.toml: a table a method and setting, over the environment's own file."""
    file = folder / f"{cell.env}.toml"
    tables = read_toml(file) if file.exists() else {}
    own = {k: v for k, v in best.items() if k in FIELDS and k not in given(cell)}
    tables.setdefault(cell.method, {})[cell.setting] = own
    head = (
        f"# Chosen by `fedqhd reproduce tune`, over configs/{cell.env}.toml; its trials are in results/tune.json.\n\n"
    )
    write_bytes(file, (head + tomli_w.dumps(dict(sorted(tables.items())))).encode())


def chosen_folder(plan: Plan, results: Path) -> Path:
    """Where the choices are written: what the package comes with is not replaced by those of altered trials."""
    return results / "tuned" if plan.alterations and plan.tuned == TUNED else plan.tuned


def searched(results: Path) -> set[Cell]:
    """The cells whose trials are recorded."""
    return {Cell(r["method"], r["env"], r["setting"]) for r in store.read_rows(results, Tune.name)}


def write_record(results: Path, cell: Cell, trials: list[dict[str, Any]], best: Settings, alteration: str = "") -> None:
    chosen = {k: v for k, v in best.items() if k not in given(cell)}
    store.merge(results, Tune(), [{**given(cell), "chosen": chosen, "trials": trials}], alteration)


class Tune(Study):
    """A row for each cell: its trials and what was chosen. The choices are also settings, in configs/tuned."""

    name = "tune"
    about = "the settings of preset `tuned`: eight quarter-length trials a cell, on seeds that are not reported"
    hours = 1.9
    key = ("method", "env", "setting")
    in_results = True
    can_collect = False

    def left(self, plan: Plan, results: Path) -> tuple[list[Cell], int]:
        """The cells that are not tuned yet, and how many are."""
        every = list(dict.fromkeys(c.source for c in plan.cells))
        before = searched(results)
        cells = [c for c in every if c not in before]
        return cells, len(every) - len(cells)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        _, done = self.left(plan, results)
        before = [f"{done} cells are tuned already: they are in {store.file_of(results, self.name)}"] if done else []
        return [*before, f"what is chosen is written to {chosen_folder(plan, results)}"]

    def all_series(self, plan: Plan, archive: Archive, results: Path) -> tuple[list[JobSeries], int]:
        cells, _ = self.left(plan, results)
        return [archive.kept(search(plan, cell, results), restore=True) for cell in cells], TRIALS * len(cells)

    def meant(self, row: Mapping[str, Any]) -> int:
        return 1  # a search has its own seeds

    def order(self, row: Mapping[str, Any]) -> Any:
        return row["env"], row["setting"], row["method"]
