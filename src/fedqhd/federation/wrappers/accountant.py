"""The privacy accountant: exact epsilon and delta of repeated Gaussian noise."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def delta_of(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which N(0, 1) and N(mu, 1) are (epsilon, delta)-indistinguishable.

    The formula is that of Balle and Wang (2018).
    """
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return float(ndtr(a) - math.exp(epsilon + log_ndtr(b)))


def epsilon_of(noise: float, reports: int, delta: float) -> float:
    """Return epsilon after a number of noised reports, each of which may depend on those before it.

    Args:
        noise: The standard deviation z of the noise in units of the sensitivity; 0 gives infinity.
        reports: The number T of reports; 0 gives 0.
        delta: The delta at which epsilon is computed.
    """
    return epsilon_at(reports * cost_of(noise) if reports else 0.0, delta)


def cost_of(noise: float) -> float:
    """Return 1 / z^2, what one report with noise z adds to the cost of all; infinity without noise."""
    return 1 / noise**2 if noise else math.inf


def epsilon_at(cost: float, delta: float) -> float:
    """Return epsilon after reports whose costs add up to `cost`.

    Gaussian mechanisms with noises z_1, ..., z_T compose exactly into one with noise 1 / sqrt(sum of 1 / z_t^2) (Dong,
    Roth and Su, 2019), whose epsilon is known exactly, so the result is not just an upper bound.
    """
    mu = math.sqrt(cost)
    if not mu or math.isinf(mu):
        return mu
    if delta_of(0.0, mu) <= delta:
        return 0.0
    # The privacy loss is N(mu^2 / 2, mu^2); its mean plus sqrt(2 log(1 / delta)) deviations is a safe upper end.
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(lambda e: delta_of(e, mu) - delta, 0.0, most, xtol=1e-12))
