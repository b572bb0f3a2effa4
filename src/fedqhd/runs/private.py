"""What hides clients from the server goes with what, and how much it has hidden in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedqhd.runs.config import Config


SECURE_CLIENTS = 3
"""Of two, each could subtract itself from the mean."""


def check_privacy(c: Config, need: Callable[[bool, str, str], None]) -> None:
    """Refuse what would not be hidden."""
    for name in ("dp_clip", "dp_noise"):
        need(getattr(c, name) >= 0, name, "it must be at least 0")
    need(0 < c.dp_delta < 1, "dp_delta", "it must be above 0 and below 1")
    need(c.secure_range > 0, "secure_range", "it must be above 0")
    if c.dp_clip:
        check_alone(c, need, "differential privacy covers W or Q")
        need(c.method != "fedavg-dqn", "method", "differential privacy covers W or Q, and no networks")
        need(c.anchor_source != "teacher", "anchor_source",
             "differential privacy needs anchors that stay: give rollout, uniform, mix or file")  # fmt: skip
    if c.secure != "off":
        check_alone(c, need, "secure aggregation adds up replies of one shape")
        need(c.aggregate == "mean", "aggregate",
             f"with secure={c.secure} the server cannot look at single replies, so it cannot leave out those that lie: "
             "the two exclude each other; give aggregate=mean")  # fmt: skip
        need(c.weights == "uniform", "weights", f"secure={c.secure} weighs all clients alike: give uniform")
        need(c.uplink == "full", "uplink", f"secure={c.secure} rounds by itself: give full")
        need(c.attack == "none", "attack", f"with secure={c.secure} nobody sees single replies")
        need(c.late == 0, "late", f"with secure={c.secure} a reply that comes late cannot be unmasked")
        need(c.engine in ("auto", "flower"), "engine", f"secure={c.secure} needs flower")
        fewest = round(c.participation * c.clients)
        need(fewest >= SECURE_CLIENTS, "clients",
             f"secure={c.secure} hides a client among at least {SECURE_CLIENTS} a round, not {fewest}")  # fmt: skip


def check_alone(c: Config, need: Callable[[bool, str, str], None], what: str) -> None:
    """Of all that clients can send, W or Q alone."""
    need(c.method != "independent-qhd" and not c.method.startswith("oracle"), "method", "nothing is exchanged")
    need(c.exchange == "model", "exchange", f"{what}: give model")
    need(c.weights != "precision", "weights", f"{what}: give uniform")
    need(c.anchor_source != "visited", "anchor_source", f"{what}, and no states: give rollout, uniform, mix or file")


def largest(c: Config) -> float | None:
    """With secure aggregation, the largest number in a reply."""
    return None if c.secure == "off" else c.secure_range


def spent(c: Config, reports: int) -> dict[str, Any]:
    """What differential privacy is worth after so many reports, for the summary."""
    if not c.dp_clip:
        return {}
    from fedqhd.federation.wrappers.accountant import (
        epsilon_of,  # which takes a second to load, and clients have no use for it
    )

    epsilon = epsilon_of(c.dp_noise, reports, c.dp_delta)
    return {
        "privacy": {
            "epsilon": epsilon if math.isfinite(epsilon) else None, "delta": c.dp_delta, "reports": reports,
            "clip": c.dp_clip, "noise": c.dp_noise,
        }
    }  # fmt: skip


def said(privacy: Mapping[str, Any]) -> str:
    """For the terminal."""
    epsilon = privacy["epsilon"]
    how = "no privacy without noise" if epsilon is None else f"epsilon {epsilon:.3g} at delta {privacy['delta']:g}"
    return f"differential privacy of W or Q after {privacy['reports']} reports a client: {how}"
