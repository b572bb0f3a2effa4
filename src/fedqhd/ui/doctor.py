"""`fedqhd doctor`: what is installed, which extras are missing, and how fast the kernels are on this machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from fedqhd._version import __version__
from fedqhd.agents import OnlineQHD, OnlineSettings, ReplayQHD, ReplaySettings
from fedqhd.core.protocols import Transition
from fedqhd.encoders import RandomFourier
from fedqhd.engines import cores
from fedqhd.report.play import has_screen
from fedqhd.runs.limits import free_memory

SECONDS = 0.2
"""Duration of each measurement."""
DIMS = (1_000, 10_000)
PURPOSES = {
    "export": "fedqhd export --format onnx",
    "flower": "fedqhd federate, and fedqhd train --engine flower",
    "minatar": "the games of MinAtar, fedqhd train --env MinAtar/Breakout-v1",
    "tensorboard": "fedqhd report --tensorboard",
    "completion": "fedqhd completion",
    "docs": "make docs",
    "dev": "the tests",
}
"""What each extra is needed for."""


def required() -> dict[str, list[str]]:
    """Return the names of the required packages by extra; those that are always required are under ""."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires("fedqhd") or []:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"](\w+)['\"]", line)
        if name and name[0] != "fedqhd":
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def version(package: str) -> str:
    """Return the installed version of a package, or "" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def missing(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed."""
    return [package for package in required().get(extra, []) if not version(package)]


def speeds() -> Iterator[tuple[int, float, float, float]]:
    """Measure agents with four state variables and two actions.

    Yields:
        D, and the microseconds to choose an action, to learn online and to learn from a minibatch of 32.
    """
    rng = np.random.default_rng(0)
    states = rng.normal(size=(64, 4)).astype(np.float32)
    for D in DIMS:
        encoder = RandomFourier.sample(4, D, 1.5, rng)
        online = OnlineQHD(encoder, 2, OnlineSettings(eta=0.1), rng)
        replay = ReplayQHD(encoder, 2, ReplaySettings(eta=0.01, features="int8", replay_size=1000), rng)
        steps = [Transition(s, k % 2, 0.1, 0.9, states[(k + 1) % 64]) for k, s in enumerate(states)]
        for t in steps:  # the first calls compile the kernels or load them from the cache
            online.act(t.s)
            online.observe(t)
            replay.observe(t)
        yield D, each(lambda t, a=online: a.act(t.s), steps), each(online.observe, steps), each(replay.observe, steps)


def each(f, things) -> float:  # type: ignore[no-untyped-def]
    """Return the mean microseconds of f(x) for x in `things`, called in turn."""
    began, count = perf_counter(), 0
    while perf_counter() - began < SECONDS:
        for thing in things:
            f(thing)
        count += len(things)
    return 1e6 * (perf_counter() - began) / count


def examine(console: Console) -> int:
    """Print everything. Return 1 if a required package is missing, else 0."""
    memory = free_memory()
    free = f", {memory / 1e9:.1f} GB of memory free" if memory is not None else ""
    console.print(f"fedqhd {__version__}, Python {platform.python_version()}, {platform.platform()}", highlight=False)
    console.print(f"{cores()} of {os.cpu_count()} cores{free}, {'a' if has_screen() else 'no'} screen", highlight=False)
    packages = Table(title="required packages", title_justify="left")
    packages.add_column("package")
    packages.add_column("version")
    for package in required().get("", []):
        packages.add_row(package, version(package) or "[red]missing[/red]")
    console.print(packages)
    extras = Table(title="extras", title_justify="left")
    for title in ("extra", "needed for", "state"):
        extras.add_column(title, overflow="fold")
    for extra in required():
        if extra:
            lacking = missing(extra)
            state = f"lacks {', '.join(lacking)}: pip install 'fedqhd\\[{extra}]'" if lacking else "installed"
            extras.add_row(extra, PURPOSES.get(extra, ""), state)
    console.print(extras)
    table = Table(title="time of one call in microseconds", title_justify="left")
    for title in ("D", "act", "learn online", "learn, minibatch of 32"):
        table.add_column(title, justify="right")
    for D, *times in speeds():
        table.add_row(f"{D:,}", *(f"{t:.1f}" for t in times))
    console.print(table)
    return 1 if missing("") else 0
