"""What Gaussian noise is worth: epsilon and delta of differential privacy, exactly."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def delta_of(epsilon: float, mu: float) -> float:
    """The delta at which N(0, 1) and N(mu, 1) cannot be told apart by more than epsilon (Balle and Wang, 2018)."""
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return float(ndtr(a) - math.exp(epsilon + log_ndtr(b)))


def epsilon_of(noise: float, reports: int, delta: float) -> float:
    """Epsilon after so many noised reports, each of which may depend on those before it.

    T Gaussian mechanisms of noise z are together exactly as one of z / sqrt(T) (Dong, Roth and Su, 2019), and what that
    is worth is known exactly: no bound is lost on the way.
    """
    if not reports:
        return 0.0
    if not noise:
        return math.inf
    mu = math.sqrt(reports) / noise
    if delta_of(0.0, mu) <= delta:
        return 0.0
    # log(1 / delta) deviations of the privacy loss, which is N(mu^2 / 2, mu^2), are more than enough.
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(lambda e: delta_of(e, mu) - delta, 0.0, most, xtol=1e-12))
