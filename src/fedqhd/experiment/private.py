"""What hides clients from the server goes with what, and how much it has hidden in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedqhd.experiment.config import Config


def check_privacy(c: Config, need: Callable[[bool, str, str], None]) -> None:
    """Refuse what would not be hidden."""
    for name in ("dp_clip", "dp_noise"):
        need(getattr(c, name) >= 0, name, "it must be at least 0")
    need(0 < c.dp_delta < 1, "dp_delta", "it must be above 0 and below 1")
    if c.dp_clip:
        check_alone(c, need, "differential privacy covers W or Q")
        need(c.method != "fedavg-dqn", "method", "differential privacy covers W or Q, and no networks")
        need(c.anchor_source != "teacher", "anchor_source",
             "differential privacy needs anchors that stay: give rollout, uniform, mix or file")  # fmt: skip


def check_alone(c: Config, need: Callable[[bool, str, str], None], what: str) -> None:
    """Of all that clients can send, W or Q alone."""
    need(c.method != "independent-qhd" and not c.method.startswith("oracle"), "method", "nothing is exchanged")
    need(c.exchange == "model", "exchange", f"{what}: give model")
    need(c.weights != "precision", "weights", f"{what}: give uniform")
    need(c.anchor_source != "visited", "anchor_source", f"{what}, and no states: give rollout, uniform, mix or file")


def spent(c: Config, reports: int) -> dict[str, Any]:
    """What differential privacy is worth after so many reports, for the summary."""
    if not c.dp_clip:
        return {}
    from fedqhd.theory.privacy import epsilon_of  # which takes a second to load, and clients have no use for it

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
