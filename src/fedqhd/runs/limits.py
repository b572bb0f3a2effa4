"""Checks, before a run starts, that it fits into the memory of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedqhd.agents.learners.least_squares import DENSE
from fedqhd.agents.settings import feature_bytes
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.encoders.settings import dimension, real_features
from fedqhd.federation.method import method_of

MEMINFO = Path("/proc/meminfo")


def check_size(c: Config, clients: Sequence[int], actions: int) -> None:
    """Raise FedQHDError if the features and matrices of these clients would exceed the limits or the free memory.

    Args:
        c: The settings of the run.
        clients: The clients on this machine.
        actions: The number of actions.
    """
    method = method_of(c)
    kinds = {i: method.learner(i)[0] for i in clients}
    sizes = {i: dimension(c, i, method.pooled) for i, kind in kinds.items() if kind.encodes}
    if not sizes:
        return
    most = max(sizes.values())
    for i in sizes:
        for name, value in kinds[i].needs_matrices(c).items():
            if real_features(c, most) > DENSE:
                raise FedQHDError(
                    f"{name}={value} needs D x D matrices, but dims={list(c.dims)} has more than {DENSE} features: "
                    f"choose smaller dimensions"
                )
    free = free_memory()
    if free is None:
        return
    need = sum(kinds[i].memory_bytes(c, D, actions) for i, D in sizes.items())
    if need > free:

        def fits(D: int) -> bool:
            return sum(kinds[i].memory_bytes(c, D, actions) for i in sizes) <= free

        largest = next((D for D in range(most, 0, -1) if fits(D)), 0)
        raise FedQHDError(
            f"dims={list(c.dims)} and replay_size={c.replay_size} need {need / 1e9:.1f} GB for {method.learner_name}, "
            f"but {free / 1e9:.1f} GB are free: dimensions up to {largest} fit"
        )


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
