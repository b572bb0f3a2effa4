"""Differential privacy of what a client reports: its change of the teacher, clipped and noised, and what that is worth.

Whoever sees the noised reports of T rounds, the server included, can tell one history of a client from any other only
as well as (epsilon, delta) allows. Returns and lengths of episodes, which travel for the log, are not covered.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Client, Federation, Payload
from fedqhd.federation.wrappers.base import Wrapper
from fedqhd.federation.wrappers.uplink import as_real


class Privacy(NamedTuple):
    clip: float
    """L2 norm that a client's change of the teacher has at the most, C."""
    noise: float
    """Standard deviation of the noise, in units of the 2C by which two clipped changes can differ, z."""
    seed: int | None
    """For experiments; None: noise that nobody can draw again."""


def privatised(report: Payload, teacher: Payload | None, privacy: Privacy, client: int, episodes: int) -> Payload:
    """teacher + clip(report - teacher) + N(0, (2 C z)^2), over all the arrays of the report at once."""
    names = sorted(report)
    before = {k: teacher[k] if teacher is not None else np.zeros_like(report[k]) for k in names}
    change = [as_real(report[k]).astype(np.float64) - as_real(before[k]) for k in names]
    norm = math.sqrt(sum(float(np.vdot(v, v)) for v in change))
    # By the episodes played, so that a run that resumes draws what it would have drawn.
    own = np.random.default_rng(
        None if privacy.seed is None else rng.env_seed(privacy.seed, client, "privacy", episodes)
    )
    sigma, factor = 2 * privacy.clip * privacy.noise, min(1.0, privacy.clip / norm) if norm else 1.0
    sent = {}
    for name, v in zip(names, change, strict=True):
        noised = as_real(before[name]) + factor * v + own.normal(0.0, sigma, v.shape)
        dtype = report[name].dtype
        sent[name] = noised.astype(report[name].real.dtype).view(dtype)
    return sent


class Private(Wrapper):
    """Any federation, with reports that are clipped and noised before they leave the client."""

    def __init__(self, inner: Federation, privacy: Privacy) -> None:
        super().__init__(inner)
        self.privacy = privacy

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        honest = self.inner.report(client, teacher)
        return privatised(honest, teacher, self.privacy, client.index, client.episodes)
