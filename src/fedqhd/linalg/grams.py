"""Matrices that somebody else has computed: whether they are sums of squares, and the ridge with which they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedqhd.linalg.normal import Factors

Array = NDArray[Any]
FLOAT = np.finfo(np.float64)
MARGIN = 4.0
"""How many times the rounding error of its largest pivot the smallest pivot of a factorisation must be."""


def least_ridge(G: Array) -> float:
    """Return the least ridge with which the factors of matrices X^T X (A, p, p) are reliable, whatever their rank.

    The rounding error of a factorisation grows with the largest entry, which is on the diagonal.
    """
    largest = float(np.diagonal(G, axis1=1, axis2=2).max(initial=0.0))
    return max(MARGIN * float(FLOAT.eps) * G.shape[-1] * largest, float(FLOAT.tiny))


def are_sums_of_squares(G: Array) -> bool:
    """Tell whether matrices (A, p, p) of finite numbers are X^T X for some X, up to rounding in double precision.

    They must be symmetric and have no negative eigenvalues, which is so if they have Cholesky factors.
    """
    if not np.array_equal(G, np.swapaxes(G, 1, 2)):
        return False
    try:
        for gram in G.astype(np.float64):
            Factors(gram[None], least_ridge(gram[None]))
    except np.linalg.LinAlgError:
        return False
    return True


def reliable_ridge(lam: float, parts: list[Array], total: Array) -> float:
    """Return the ridge for a sum of matrices (A, p, p) that pass `are_sums_of_squares`: lam, if it is large enough.

    Each of them may have eigenvalues below zero by its own rounding error.
    """
    return max(lam, sum(map(least_ridge, parts)) + least_ridge(total))
