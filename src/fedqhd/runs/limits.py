"""Checks, before a run starts, that it fits into the memory of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedqhd.agents.learners.least_squares import DENSE
from fedqhd.agents.settings import feature_bytes
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.encoders.settings import dimension, real_features
from fedqhd.envs.public import public_bytes
from fedqhd.federation.method import method_of

MEMINFO = Path("/proc/meminfo")
MOST_VARIABLES = 4096
"""The largest number of state variables. Distances between larger observations, which are images, say too little about
the state for a fixed encoder to learn from."""
OTHERWISE = "choose smaller values, or wrap the environment so that a state has fewer variables"
"""What to do if no dimension fits."""
SIZES = ("dims", "replay_size", "anchors", "rollout_steps")
"""The settings that decide how much memory a run needs."""


def check_size(c: Config, clients: Sequence[int], n: int, actions: int) -> None:
    """Raise FedQHDError if the states, features and matrices of these clients would exceed a limit or the free memory.

    Args:
        c: The settings of the run.
        clients: The clients on this machine.
        n: Number of state variables.
        actions: Number of actions.
    """
    if n > MOST_VARIABLES:
        raise FedQHDError(
            f"env={c.env!r} has observations of {n:,} variables, but at most {MOST_VARIABLES:,} can be learned from: "
            "give a function that wraps the environment so that its observations are smaller, such as a shrunken image"
        )
    method = method_of(c)
    kinds = {i: method.learner(i)[0] for i in clients}
    sizes = {i: dimension(c, i, method.pooled) if kind.encodes else 0 for i, kind in kinds.items()}
    most = max(sizes.values(), default=0)
    for kind in kinds.values():
        for name, value in kind.needs_matrices(c).items():
            if real_features(c, most) > DENSE:
                raise FedQHDError(
                    f"{name}={value} needs D x D matrices, but dims={list(c.dims)} has more than {DENSE} features: "
                    f"choose smaller dimensions"
                )
    free = free_memory()
    if free is None:
        return

    def need(largest: int) -> int:
        """Return the bytes that the run needs if no dimension is above `largest`."""
        agents = (kinds[i].memory_bytes(c, n, min(D, largest), actions) for i, D in sizes.items())
        return public_bytes(c, n) + sum(agents)

    if need(most) > free:
        fitting = next((D for D in range(most, 0, -1) if need(D) <= free), 0)
        given = [f"{name}={_shown(c.values[name])}" for name in SIZES if name in c]
        raise FedQHDError(
            f"{', '.join(given)} and {n:,} variables in a state need {need(most) / 1e9:.2g} GB for "
            f"{method.learner_name}, but {free / 1e9:.2g} GB are free: "
            + (f"dimensions up to {fitting} fit" if fitting else OTHERWISE)
        )


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def free_memory() -> int | None:
    """Return the available memory in bytes; None if the system does not tell."""
    return 1024 * int(MEMINFO.read_text().partition("MemAvailable:")[2].split()[0]) if MEMINFO.exists() else None


def stored_as(c: Config) -> str:
    """Return the format in which the replay memories of a run store hypervectors."""
    learners = [learner for learner in method_of(c).learners(c.values) if learner.encodes]
    return learners[0].stored_as(c) if learners else "recompute"


def all_feature_bytes(c: Config) -> int:
    """Return the bytes of the hypervectors that all agents with an encoder store."""
    method = method_of(c)
    kinds = [(i, method.learner(i)[0]) for i in method.clients]
    return sum(feature_bytes(c, kind.stored_as(c), dimension(c, i, method.pooled)) for i, kind in kinds if kind.encodes)
