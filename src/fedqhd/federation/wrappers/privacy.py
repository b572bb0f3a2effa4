"""Differential privacy of a client's reports: its change of the teacher is clipped and noised before it is sent.

Anyone who sees the noised reports of T rounds, including the server, can distinguish one history of a client from any
other only as well as (epsilon, delta) allows. The returns and lengths of episodes, which are sent for the log, are not
protected.
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
    """The parameters of the Gaussian mechanism."""

    clip: float
    """The largest L2 norm C of a client's change of the teacher."""
    noise: float
    """The standard deviation z of the noise, in units of 2C, the largest difference between two clipped changes."""
    seed: int | None
    """A seed for reproducible experiments; None draws noise that nobody can reproduce."""


def privatised(
    report: Payload, teacher: Payload | None, privacy: Privacy, client: int, episodes: int, open_steps: int = 0
) -> Payload:
    """Return teacher + clip(report - teacher) + N(0, (2 C z)^2), with one norm over all arrays of the report.

    Args:
        report: The client's honest report.
        teacher: The teacher that it installed before; None stands for zeros.
        privacy: The parameters of the mechanism.
        client: The number of the client.
        episodes: The number of episodes it has played, which seeds the noise together with `privacy.seed`.
        open_steps: The steps of its open episode, which seed the noise, too, as no two reports may have the same.
    """
    names = sorted(report)
    before = {k: teacher[k] if teacher is not None else np.zeros_like(report[k]) for k in names}
    change = [as_real(report[k]).astype(np.float64) - as_real(before[k]) for k in names]
    norm = math.sqrt(sum(float(np.vdot(v, v)) for v in change))
    # What was played is part of the seed, so that a resumed run draws the noise it would have drawn anyway.
    purpose = f"privacy/{open_steps}" if open_steps else "privacy"
    own = np.random.default_rng(None if privacy.seed is None else rng.env_seed(privacy.seed, client, purpose, episodes))
    sigma, factor = 2 * privacy.clip * privacy.noise, min(1.0, privacy.clip / norm) if norm else 1.0
    sent = {}
    for name, v in zip(names, change, strict=True):
        noised = as_real(before[name]) + factor * v + own.normal(0.0, sigma, v.shape)
        dtype = report[name].dtype
        sent[name] = noised.astype(report[name].real.dtype).view(dtype)
    return sent


class Private(Wrapper):
    """A federation whose reports are clipped and noised before they leave the client."""

    def __init__(self, inner: Federation, privacy: Privacy) -> None:
        super().__init__(inner)
        self.privacy = privacy

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        honest = self.inner.report(client, teacher)
        return privatised(honest, teacher, self.privacy, client.index, client.episodes, client.open_steps)
