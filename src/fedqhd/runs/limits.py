"""What a run, or a look at the gap, needs of the machine, said before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedqhd.agents.least_squares import DENSE
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.checks import hidden_widths
from fedqhd.runs.choices import DQN_METHODS, QHD_METHODS
from fedqhd.runs.config import Config

MEMINFO = Path("/proc/meminfo")


def dimension(c: Config, client: int) -> int:
    """D of a client's encoder."""
    if c.setting == "homogeneous":
        return c.dims[0]
    # The oracle is one agent for all: the largest of the clients' encoders.
    return max(c.dims) if c.method == "oracle-qhd" else c.dims[client % len(c.dims)]


def kind_of(c: Config, client: int) -> tuple[int, ...]:
    """The hidden widths of a client's network, or () for a QHD client."""
    if c.agents:
        return hidden_widths(c.agents[client % len(c.agents)])
    if c.method not in DQN_METHODS:
        return ()
    if c.method == "oracle-dqn" and c.setting == "heterogeneous":
        return (max(c.widths),) * 2
    return (c.widths[0 if c.setting == "homogeneous" else client % len(c.widths)],) * 2


def check_size(c: Config, clients: Sequence[int], actions: int) -> None:
    """Features and D x D matrices are kept: say so before, not after, they fill the machine."""
    if c.method not in QHD_METHODS:
        return
    most = max(dimension(c, i) for i in clients)
    certain = {"weights": "precision", "explore": "bonus", "exchange": "statistics"}
    for name, value in certain.items():
        if getattr(c, name) == value and features(c, most) > DENSE:
            raise FedQHDError(
                f"{name}={value} needs D x D matrices, and dims={list(c.dims)} goes beyond {DENSE} features: choose "
                f"smaller dimensions"
            )
    free = free_memory()
    if free is None:
        return
    need = sum(memory_need(c, dimension(c, i), actions) for i in clients)
    if need > free:
        fits = next((D for D in range(most, 0, -1) if len(clients) * memory_need(c, D, actions) <= free), 0)
        raise FedQHDError(
            f"dims={list(c.dims)} and replay_size={c.replay_size} need {need / 1e9:.1f} GB for {c.learner}, and "
            f"{free / 1e9:.1f} GB are free: dimensions up to {fits} fit"
        )


def free_memory() -> int | None:
    """Bytes, or None where the system does not say."""
    return 1024 * int(MEMINFO.read_text().partition("MemAvailable:")[2].split()[0]) if MEMINFO.exists() else None


def features(c: Config, D: int) -> int:
    """Real ones: a complex feature counts twice."""
    return 2 * D if "complex" in c.encoder else D


def memory_need(c: Config, D: int, actions: int) -> int:
    """Bytes of one client's kept features, and of normal equations with a copy that is factorised."""
    p, precision = features(c, D), 8 if kept_as(c) == "float64" else 4
    dense = c.learner == "least-squares" and p <= DENSE
    return feature_bytes(c, D) + (2 * actions * p * p * precision if dense else 0)


def kept_as(c: Config, own: bool | None = None) -> str:
    """How a memory keeps its hypervectors: by default rounded to int8, the fastest at any D; those of an encoder of the
    user's `own` (by default: if the first is one) may not fit that."""
    own = ":" in c.encoder[0] if own is None else own
    if c.method not in QHD_METHODS or c.learner == "online":
        return "recompute"
    if c.learner == "least-squares" and c.exchange == "statistics":
        return "float64"
    if c.learner == "least-squares" and c.features == "recompute":
        return "float32"  # a fit goes through all of them many times: they are always kept
    return c.features if c.features != "auto" else "float32" if own else "int8"


def feature_bytes(c: Config, D: int) -> int:
    """Of one client's memory, when it is full."""
    return 0 if kept_as(c) == "recompute" else features(c, D) * c.replay_size * np.dtype(kept_as(c)).itemsize


def all_feature_bytes(c: Config) -> int:
    """Of all clients that have an encoder; an oracle is one."""
    clients = range(1 if c.method.startswith("oracle") else c.clients)
    return sum(feature_bytes(c, dimension(c, i)) for i in clients if not kind_of(c, i))
