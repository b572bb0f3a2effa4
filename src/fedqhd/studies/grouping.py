"""Finished runs in groups that differ in their settings; the runs of a group differ only in their seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.protocols import Array
from fedqhd.runs.config import load_config
from fedqhd.runs.outcome import final_returns, smooth
from fedqhd.runs.settings import NEUTRAL
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Run, finished

VARIED = ("seed", "keep", *NEUTRAL)
"""Settings in which the runs of a group may differ: all but the seed have no effect on the results."""
MAIN = ("method", "setting", "learner")
"""Settings whose values speak for themselves in the name of a group. They are looked at first."""
SMOOTH = 20
"""The number of episodes over which returns are averaged in long runs."""
MAX_NAMED = 5
"""The largest number of settings that a note names."""


@dataclass(frozen=True)
class Group:
    """The results of the runs of one environment that have the same values of some settings."""

    env: str
    label: str
    values: dict[str, Any]
    """The settings by which runs are grouped."""
    seeds: list[int]
    """The seed of each run; all arrays are in this order."""
    final_return: Array
    greedy_return: Array
    curves: Array
    """The training returns, averaged over clients and smoothed, (runs, episodes)."""
    method: str
    """The method of the first run, by which charts choose colours."""


def find_runs(folder: Path) -> tuple[list[Path], list[Path]]:
    """Find the runs in a folder, which is that of a run or contains folders of runs at any depth.

    Returns:
        The folders of the finished runs, and those of runs that have begun but not finished.

    Raises:
        FedQHDError: If the folder does not exist or contains no finished run.
    """
    if not folder.is_dir():
        raise FedQHDError(f"{str(folder)!r} is not a folder: a run, or a folder of runs, is needed")
    if (folder / "config.toml").exists() and not (folder / "summary.json").exists():
        raise FedQHDError(f"{str(folder)!r} is not finished: fedqhd train --resume --out {folder} continues it")
    homes = {file.parent for name in ("config.toml", "failed.json") for file in folder.rglob(name)}
    done = [home for home in homes if (home / "config.toml").exists() and (home / "summary.json").exists()]
    if not done:
        raise FedQHDError(f"{str(folder)!r} contains no finished run: a folder with results of fedqhd.train is needed")
    return sorted(done, key=in_numeric_order), sorted(homes - set(done), key=in_numeric_order)


def in_numeric_order(path: Path) -> list[Any]:
    """Return a key that sorts dims=100 before dims=1000."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """Read finished runs; a folder that is named twice counts once."""
    unique = {folder.resolve(): folder for folder in folders}
    return finished(Job(str(f), "", load_config(f / "config.toml").replace(out=str(f))) for f in unique.values())


def settings_of(run: Run, names: Iterable[str]) -> tuple[Any, ...]:
    """Return the values of some settings of a run, with None for a setting that it does not have."""
    return tuple(run.job.config.get(name) for name in names)


def names_of(runs: Sequence[Run]) -> list[str]:
    """Return the names of all settings that affect these runs, in the order in which differences are looked for."""
    every = dict.fromkeys(name for run in runs for name in run.job.config.values)
    return [name for name in dict.fromkeys([*MAIN, *every]) if name in every and name not in (*VARIED, "env")]


def differing(runs: Sequence[Run]) -> list[str]:
    """Return the fewest settings, as far as looking at one after another finds them, that tell the runs apart.

    Settings that differ only together with another one, such as those that only one of the methods has, are left out.
    Runs of different environments need not be told apart.
    """
    names, chosen = names_of(runs), list[str]()

    def kinds(by: Sequence[str]) -> int:
        return len({settings_of(run, ("env", *by)) for run in runs})

    for name in names:
        if kinds([*chosen, name]) > kinds(chosen):
            chosen.append(name)
        if kinds(chosen) == kinds(names):
            break
    return chosen


def check_names(by: Sequence[str], runs: Sequence[Run]) -> None:
    """Raise FedQHDError if runs cannot be grouped by one of these settings."""
    known = {name for run in runs for name in run.job.config.values}
    for name in by:
        if name == "env":
            raise FedQHDError(
                "by='env' is not possible: returns of different environments are on different scales; leave it out, "
                "and each environment gets a table and a chart of its own"
            )
        if name not in known:
            raise FedQHDError(f"by={name!r} is not a setting of these runs{nearest(name, known)}")


def text_of(name: str, value: Any) -> str:
    """Return the value of a setting as it is shown in the name of a group."""
    if value is None:
        return f"no {name}"
    parts = value if isinstance(value, tuple) else (value,)
    text = " ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)
    return text if name in MAIN else f"{name}={text}"


def label_of(values: dict[str, Any]) -> str:
    """Return the name of a group, such as "fedqhd, dims=100"."""
    return ", ".join(text_of(name, value) for name, value in values.items()) or "all runs"


def groups_of(runs: Sequence[Run], by: Sequence[str]) -> tuple[list[Group], list[str]]:
    """Group runs by settings, in the order in which environments and groups first occur.

    Args:
        runs: The runs.
        by: The names of the settings.

    Returns:
        The groups, and what the reader should know about them, in sentences.
    """
    check_names(by, runs)
    found, notes, mixed = list[Group](), list[str](), set[str]()
    for env in dict.fromkeys(run.job.config.env for run in runs):
        here = [run for run in runs if run.job.config.env == env]
        returns = [run.returns() for run in here]
        lengths = {r.shape[1] for r in returns}
        common = min(lengths)
        if common == 0:
            none = [run.job.folder for run, r in zip(here, returns, strict=True) if not r.shape[1]]
            raise FedQHDError(f"in {str(none[0])!r} no episode ended, so there are no returns to compare: leave it out")
        if len(lengths) > 1:
            notes.append(
                f"Runs on {env} have from {common} to {max(lengths)} episodes: curves and final returns are those of "
                f"the first {common} episodes, greedy returns those of whole runs."
            )
        members: dict[tuple[Any, ...], list[int]] = {}
        for k, run in enumerate(here):
            members.setdefault(settings_of(run, by), []).append(k)
        for key, indices in members.items():
            group, played = [here[k] for k in indices], [returns[k][:, :common] for k in indices]
            mixed |= {name for name in names_of(group) if len({settings_of(run, [name]) for run in group}) > 1}
            values = dict(zip(by, key, strict=True))
            found.append(Group(
                env, label_of(values), values, [run.seed for run in group],
                final_return=np.array([np.nanmean(final_returns(r)) for r in played]),
                greedy_return=np.array([float(run.summary["greedy_return"]) for run in group]),
                curves=np.array([curve_of(r) for r in played]), method=group[0].job.config.method,
            ))  # fmt: skip
    return found, [*notes, *notes_on(found, [name for name in names_of(runs) if name in mixed])]


def notes_on(groups: Sequence[Group], mixed: Sequence[str]) -> list[str]:
    """Say which groups have no interval, and in which settings (`mixed`) the runs of a group differ."""
    notes = []
    if mixed:
        more = f" and {len(mixed) - MAX_NAMED} more" if len(mixed) > MAX_NAMED else ""
        notes.append(f"Runs of the same group also differ in {', '.join(mixed[:MAX_NAMED])}{more}.")
    several = len({group.env for group in groups}) > 1
    single = [g.label + (f" on {g.env}" if several else "") for g in groups if len(g.seeds) == 1]
    if len(single) == len(groups):
        notes.append("No group has more than one run, so there are no intervals.")
    elif single:
        notes.append(f"There is only one run, and therefore no interval, of {'; '.join(single)}.")
    return notes


def smoothing(episodes: int) -> int:
    """Return over how many episodes the returns of a run of this length are averaged in a learning curve."""
    return min(SMOOTH, max(1, episodes // 10))


def curve_of(returns: Array) -> Array:
    """Return the mean over the clients that played each episode, smoothed; (clients, T) to (T,)."""
    played = ~np.isnan(returns).all(axis=0)  # with partial participation, nobody may have played an episode
    at = np.arange(returns.shape[1])
    mean = np.interp(at, at[played], np.nanmean(returns[:, played], axis=0))
    return smooth(mean, smoothing(len(mean)))
