"""Secure aggregation and differential privacy in a run: the range of values, and the privacy spent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedqhd.core.config import Config


def secure_range(c: Config) -> float | None:
    """Return the largest absolute value in a reply with secure aggregation; None without it."""
    return None if c.get("secure", "off") == "off" else c.secure_range


def privacy_spent(c: Config, reports: int) -> dict[str, Any]:
    """Return the summary's entry on differential privacy after a number of reports per client; {} without it."""
    if not c.get("dp_clip"):
        return {}
    # It takes a second to import, and clients do not need it.
    from fedqhd.federation.wrappers.accountant import epsilon_of

    epsilon = epsilon_of(c.dp_noise, reports, c.dp_delta)
    return {
        "privacy": {
            "epsilon": epsilon if math.isfinite(epsilon) else None, "delta": c.dp_delta, "reports": reports,
            "clip": c.dp_clip, "noise": c.dp_noise,
        }
    }  # fmt: skip


def privacy_text(privacy: Mapping[str, Any]) -> str:
    """Describe the summary's entry on differential privacy in one sentence for the terminal."""
    epsilon = privacy["epsilon"]
    how = "no privacy without noise" if epsilon is None else f"epsilon {epsilon:.3g} at delta {privacy['delta']:g}"
    return f"differential privacy of W or Q after {privacy['reports']} reports per client: {how}"
