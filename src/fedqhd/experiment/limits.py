"""What a run of least squares, or a look at the gap, needs of the machine, said before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedqhd.agents.least_squares import DENSE
from fedqhd.experiment.config import QHD_METHODS, Config
from fedqhd.interfaces import FedQHDError
from fedqhd.theory.gap import svd_bytes

MEMINFO = Path("/proc/meminfo")


def dimension(c: Config, client: int) -> int:
    """D of a client's encoder."""
    if c.setting == "homogeneous":
        return c.dims[0]
    # The oracle is one agent for all: the largest of the clients' encoders.
    return max(c.dims) if c.method == "oracle-qhd" else c.dims[client % len(c.dims)]


def check_size(c: Config, clients: Sequence[int], actions: int) -> None:
    """Least squares keeps features and D x D matrices: say so before, not after, they fill the machine."""
    if c.method not in QHD_METHODS or c.learner != "least-squares":
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
            f"dims={list(c.dims)} and replay_size={c.replay_size} need {need / 1e9:.1f} GB for least squares, and "
            f"{free / 1e9:.1f} GB are free: dimensions up to {fits} fit"
        )


def free_memory() -> int | None:
    """Bytes, or None where the system does not say."""
    return 1024 * int(MEMINFO.read_text().partition("MemAvailable:")[2].split()[0]) if MEMINFO.exists() else None


def features(c: Config, D: int) -> int:
    """Real ones: a complex feature counts twice."""
    return 2 * D if "complex" in c.encoder else D


def memory_need(c: Config, D: int, actions: int) -> int:
    """Bytes of one client's features, and of its normal equations with a copy that is factorised."""
    p = features(c, D)
    return p * c.replay_size * (8 if c.exchange == "statistics" else 4) + (2 * actions * p * p * 8 if p <= DENSE else 0)


def check_gap(m: int, p: int) -> None:
    """The gap needs the thin SVD of m x p features, then p x p normal equations, one client after the other."""
    need, free = max(svd_bytes(m, p), 2 * 8 * p * p), free_memory()
    if free is not None and need > free:
        raise FedQHDError(
            f"anchors={m} and {p} real features need {need / 1e9:.1f} GB for their decomposition, and "
            f"{free / 1e9:.1f} GB are free: choose fewer anchors or smaller dims"
        )
