"""Sweeps: runs with all combinations of some settings, on several seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedqhd.api.compare import Comparison
from fedqhd.api.options import Common
from fedqhd.api.training import Preset
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.named import PYTHON
from fedqhd.core.settings import plain
from fedqhd.core.trust import grant
from fedqhd.runs.config import resolve
from fedqhd.runs.folder import claim
from fedqhd.studies.grouping import label_of
from fedqhd.studies.plan import folder_name
from fedqhd.studies.pool import Job, single


def sweep(
    vary: Mapping[str, Any],
    *,
    seeds: Iterable[int] = range(5),
    out: str | PathLike[str] = "runs/sweep",
    workers: int = 0,
    preset: Preset = "tuned",
    **settings: Unpack[Common],
) -> Comparison:
    """Train with every combination of some settings on every seed, and compare the results.

    Runs are made in processes of their own, and their progress is shown. Those that have finished before are not
    repeated, and those that were interrupted continue, so that the same call completes a sweep that was stopped. A run
    that fails is reported by name, and the others go on.

    Args:
        vary: The settings to vary, by name. **A list (or a range, or an array) lists the values to try; anything else
            is one value for all runs.** Where one value has several entries, it is a tuple or a list in the list:
            {"dims": [100, 500]} makes runs with 100 and runs with 500 dimensions, {"dims": [(100, 500)]} and
            {"dims": (100, 500)} make runs whose clients have 100 and 500 dimensions in turn.
        seeds: The seeds of each combination, such as range(5).
        out: The folder for all runs; each has a folder of its own in it.
        workers: How many runs are made at a time; 0 for one per core.
        preset: The source of all settings that are not given, as in `fedqhd.train`.
        settings: Settings of all runs, with values as in `fedqhd.train`. A run to which one does not apply goes without
            it, but it must apply to some run.

    Returns:
        The comparison of the finished runs, grouped by the settings that vary.

    Raises:
        FedQHDError: If a combination is impossible, before anything is run; or if all runs failed.
    """
    jobs, by = plan_jobs(vary, seeds, Path(out), preset, {**settings})
    if workers < 0:
        raise FedQHDError(f"workers={workers} is not possible: it must be at least 1, or 0 for one per core")
    from rich.console import Console

    from fedqhd.report.board import run_all_series

    run_all_series([single(job) for job in jobs], len(jobs), workers, Console())
    done = [job.folder for job in jobs if job.summary() is not None]
    for folder in done:  # `plan_jobs` has compared their settings with those that the user gives
        grant(folder)
    missing = [f"{job.name} {reason(job)}" for job in jobs if job.summary() is None]
    if not done:
        raise FedQHDError(f"no run of the sweep has finished: {missing[0]}")
    return Comparison(done, by, [f"Without a result: {text}." for text in missing])


def reason(job: Job) -> str:
    """Say why a job has no result."""
    failure = job.failure()
    return f"failed ({failure['error'].rstrip('.')})" if failure else "is being run by another process"


def plan_jobs(
    vary: Mapping[str, Any], seeds: Iterable[int], out: Path, preset: Preset, settings: Mapping[str, Any]
) -> tuple[list[Job], list[str] | None]:
    """Return the runs of a sweep, and the settings by which to group them (None if none varies).

    Raises:
        FedQHDError: If a combination is impossible, or a folder holds a run with other settings.
    """
    values = {name: list(v) if isinstance(v, list | range | np.ndarray) else [v] for name, v in vary.items()}
    for name in values:
        if name in settings:
            raise FedQHDError(f"{name}={settings[name]!r} is given twice: it is also in the settings to vary")
        if name in ("seed", "out"):
            raise FedQHDError(f"{name} cannot be varied: give {'seeds=' if name == 'seed' else 'out='} instead")
        if not values[name]:
            raise FedQHDError(f"{name}=[] lists no value to try: give at least one")
    numbers = seeds_of(seeds)
    varied = [name for name in values if len(values[name]) > 1]
    common = {"engine": "local", **settings, **{name: values[name][0] for name in values if name not in varied}}
    choices = [dict(zip(varied, one, strict=True)) for one in product(*(values[name] for name in varied))]
    configs = [resolve(choice, preset=preset, shared=common) for choice in choices]
    check_common({**settings, **{k: v for k, v in common.items() if k in values}}, choices, common, preset)
    jobs = []
    for config in configs:
        label = label_of({name: config.values[name] for name in varied})
        for seed in numbers:
            home = out / folder_name(label.replace(", ", ",")) / f"seed-{seed}"
            jobs.append(Job(f"{label}, seed {seed}", label, config.replace(seed=seed, out=str(home))))
    check_jobs(jobs)
    return jobs, [name for name in varied if name != "env"] or None


def seeds_of(seeds: Iterable[int]) -> list[int]:
    """Return seeds as a list of integers."""
    if not isinstance(seeds, Iterable):
        raise FedQHDError(f"seeds={seeds!r} is not possible: give a list of seeds, such as range(5)")
    found = [plain(seed) for seed in seeds]
    if not found or not all(isinstance(seed, int) and seed >= 0 for seed in found):
        raise FedQHDError(f"seeds={found} is not possible: give integers from 0 on, such as range(5)")
    return found


def check_common(
    given: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], common: Mapping[str, Any], preset: Preset
) -> None:
    """Raise FedQHDError for a setting of all runs that has no effect in any of them."""
    for name, value in given.items():
        for choice in choices:
            with contextlib.suppress(FedQHDError):
                resolve({**choice, name: value}, preset=preset, shared=common)
                break
        else:
            resolve({**choices[0], name: value}, preset=preset, shared=common)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Raise FedQHDError if runs cannot be made in processes of their own, or not in their folders."""
    places: dict[Path, Config] = {}
    for job in jobs:
        if job.folder in places:
            raise FedQHDError(f"{job.name!r} occurs twice in the sweep: list each value and each seed once")
        places[job.folder] = job.config
        for name, value in job.config.values.items():
            if any(str(v).startswith(f"{PYTHON}:") for v in (value if isinstance(value, tuple) else (value,))):
                raise FedQHDError(
                    f"{name}={value!r} exists only in this process, and the runs of a sweep have their own: define it "
                    "in a module and give module:name"
                )
        try:
            claim(job.config, overwrite=False, resume=True)
        except FedQHDError as error:
            raise FedQHDError(
                f"out={str(job.folder)!r} holds another run ({error}): give another folder for the sweep"
            ) from error
