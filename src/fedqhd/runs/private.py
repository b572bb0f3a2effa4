"""What secure aggregation and differential privacy mean for a run, and how much the latter has hidden in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedqhd.core.config import Config


def largest(c: Config) -> float | None:
    """With secure aggregation, the largest number in a reply."""
    return None if c.get("secure", "off") == "off" else c.secure_range


def spent(c: Config, reports: int) -> dict[str, Any]:
    """What differential privacy is worth after so many reports, for the summary."""
    if not c.get("dp_clip"):
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


def privacy_text(privacy: Mapping[str, Any]) -> str:
    """What differential privacy is worth in the end, in one sentence for the terminal."""
    epsilon = privacy["epsilon"]
    how = "no privacy without noise" if epsilon is None else f"epsilon {epsilon:.3g} at delta {privacy['delta']:g}"
    return f"differential privacy of W or Q after {privacy['reports']} reports a client: {how}"
