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
from fedqhd.core.presets import PLAIN, read_toml
from fedqhd.federation.method import method_of
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.studies.pool import Job, Strand
from fedqhd.studies.presets import Cell, given, job_config, start

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
    return method_of(c).other_exchange(c)


LEVERS = (how_it_learns, kept_actions, step, exploration, exchange)


def trial(out: Path, cell: Cell, seed: int, own: Mapping[str, Any], others: Mapping[str, Any]) -> Job:
    full = resolve({}, preset=PLAIN, shared={**own, **others})
    short = max(2, round(LENGTH * full.episodes))
    config = job_config(out / "tune", cell, seed, {**own, **others, "episodes": short})
    return Job(f"{cell.env} {cell.method} {cell.setting}, seed {seed}", f"tune {cell.name}", config)


def score(job: Job, summary: Mapping[str, Any]) -> float:
    """Half the training return of the last third, half the greedy one: the two that are reported."""
    returns = training_returns(job.folder, summary["clients"], summary["episodes"])
    return float((np.nanmean(returns[:, -max(1, summary["episodes"] // 3) :]) + summary["greedy_return"]) / 2)


def search(out: Path, cell: Cell, others: Mapping[str, Any], record: Path, tuned: Path) -> Strand:
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

    def attempt(own: Settings, seed: int) -> Strand:
        job = trial(out, cell, seed, own, others)
        came = yield job
        values[seed, json.dumps(own, sort_keys=True)] = note(job, own, came)

    values: dict[tuple[int, str], float] = {}

    def value(own: Settings, seed: int) -> float:
        return values[seed, json.dumps(own, sort_keys=True)]

    yield from attempt(first, SEEDS[0])
    for lever in LEVERS:
        changed = {**best, **lever(resolve({}, preset=PLAIN, shared={**best, **others}))}
        yield from attempt(changed, SEEDS[0])
        if value(changed, SEEDS[0]) > value(best, SEEDS[0]):
            best = changed
    if best != first:
        for own in (first, best):
            yield from attempt(own, SEEDS[1])
        if sum(value(best, s) for s in SEEDS) <= sum(value(first, s) for s in SEEDS):
            best = first
    write_choice(tuned, cell, best)
    write_record(record, cell, trials, best)


def write_choice(folder: Path, cell: Cell, best: Settings) -> None:
    """configs/tuned/ENV.toml: a table a method and setting, over the environment's own file."""
    file = folder / f"{cell.env}.toml"
    tables = read_toml(file) if file.exists() else {}
    own = {k: v for k, v in best.items() if k in FIELDS and k not in given(cell)}
    tables.setdefault(cell.method, {})[cell.setting] = own
    head = (
        f"# Chosen by `fedqhd reproduce tune`, over configs/{cell.env}.toml; its trials are in results/tuning.json.\n\n"
    )
    write_bytes(file, (head + tomli_w.dumps(dict(sorted(tables.items())))).encode())


def searched(file: Path) -> set[Cell]:
    """The cells whose trials are recorded."""
    return {Cell(r["method"], r["env"], r["setting"]) for r in (json.loads(file.read_text()) if file.exists() else [])}


def write_record(file: Path, cell: Cell, trials: list[dict[str, Any]], best: Settings) -> None:
    rows = json.loads(file.read_text()) if file.exists() else []
    rows = [r for r in rows if {k: r[k] for k in given(cell)} != given(cell)]
    chosen = {k: v for k, v in best.items() if k not in given(cell)}
    rows.append({**given(cell), "chosen": chosen, "trials": trials})
    rows.sort(key=lambda r: (r["env"], r["setting"], r["method"]))
    write_bytes(file, (json.dumps(rows, indent=1) + "\n").encode())
