"""The geometry of features on a sample of states."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedqhd.theory.ridge import stacked

Array = NDArray[Any]


def largest_eigenvalue(X: Array) -> float:
    """lambda_max of E[Phi Phi^T] over the sample, real parts and imaginary ones side by side.

    A summed minibatch of B is stable while eta B lambda_max < 2.
    """
    real = stacked(X)
    m, p = real.shape
    G = real.T @ real if p <= m else real @ real.T
    return float(scipy.linalg.eigvalsh(G, subset_by_index=[len(G) - 1, len(G) - 1])[0]) / m


def normalised_step(fraction: float, B: int, X: Array) -> float:
    """The eta at which eta B lambda_max = fraction, so that clients with different bandwidths learn at one pace."""
    return fraction / (B * max(largest_eigenvalue(X), np.finfo(float).tiny))
