"""The geometry of features on a sample of states: what anchors see, and how the spans of two encoders lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedqhd.linalg.ridge import stacked

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
    """The eta at which eta B lambda_max = fraction, so that clients with different bandwidths learn at one pace.

    Where states are nearly orthogonal (symbols, one-hot), lambda_max is small and a single step overshoots first: at
    its own state it changes Q by eta |Phi|^2 delta, so that is at most `fraction` too.
    """
    steepest = max(B * largest_eigenvalue(X), float(np.max(np.sum(np.abs(X) ** 2, axis=1))))
    return fraction / max(steepest, np.finfo(float).tiny)


def gram(X: Array) -> Array:
    """G = Re(X X^H), (m, m)."""
    real = stacked(X)
    return real @ real.T


def stacked_weights(W: Array) -> Array:
    """Real weights (p, A) for the columns of `stacked(X)`, so that Re(X W) = stacked(X) stacked_weights(W)."""
    return np.vstack([W.real, W.imag]) if np.iscomplexobj(W) else np.asarray(W, np.float64)


class Spectrum:
    """The thin SVD of a client's features at the anchors, X = U diag(s) V^T: all that compilation can see.

    G = X X^T has the eigenvalues s^2. Directions with s <= rtol s_max count as rounding and are left out; everything
    that speaks of rank depends on that cut, so `rtol` is kept. Neither D x D nor, beyond the SVD, m x m is formed.
    """

    def __init__(self, X: Array, rtol: float | None = None) -> None:
        if not np.isfinite(X).all():
            raise ValueError("the features at the anchors are not finite")
        real = np.asarray(stacked(X), np.float64)
        self.m, self.p = real.shape
        self.rtol = np.finfo(float).eps * max(real.shape) if rtol is None else rtol
        U, s, Vt = scipy.linalg.svd(real, full_matrices=False, check_finite=False)
        self.rank = int(np.count_nonzero(s > self.rtol * s[0])) if s[0] > 0 else 0
        if self.rank == 0:
            raise ValueError(f"the features at the {self.m} anchors have rank 0: nothing can be compiled through them")
        self.U, self.s, self.Vt = U[:, : self.rank], s[: self.rank], Vt[: self.rank]

    @property
    def gamma(self) -> float:
        """The smallest positive eigenvalue of G."""
        return float(self.s[-1] ** 2)

    @property
    def condition(self) -> float:
        """Largest over smallest positive eigenvalue of G."""
        return float((self.s[0] / self.s[-1]) ** 2)

    def effective_rank(self, lam: float) -> float:
        """tr(G (G + lam I)^-1): the directions that the anchors see against the ridge."""
        return float(np.sum(self.s**2 / (self.s**2 + lam)))

    def solve(self, Q: Array, lam: float) -> Array:
        """(X^T X + lam I)^-1 X^T Q, as real weights (p, A); for lam = 0 the pseudo-inverse."""
        return self.Vt.T @ ((self.s / (self.s**2 + lam))[:, None] * (self.U.T @ Q))

    def seen(self, W: Array) -> Array:
        """The part of real weights (p, A) in row(X)."""
        return self.Vt.T @ (self.Vt @ W)

    def shrunk(self, W: Array, lam: float) -> Array:
        """lam (X^T X + lam I)^-1 of the part in row(X): what the ridge takes from it."""
        return self.Vt.T @ ((lam / (self.s**2 + lam))[:, None] * (self.Vt @ W))

    def visible(self, Q: Array) -> Array:
        """P Q: the part of values at the anchors that X can express, and all of them that compilation sees."""
        return self.U @ (self.U.T @ Q)

    def leave_one_out(self, Q: Array, lams: Array) -> Array:
        """Root mean square leave-one-out error at the anchors for each lam, all of them from the one SVD.

        With H = X (X^T X + lam I)^-1 X^T, the error at anchor l of the fit without it is e_l / (1 - H_ll).
        """
        C, squares = self.U.T @ Q, self.U**2
        errors = []
        for lam in lams:
            share = self.s**2 / (self.s**2 + lam)
            left = np.maximum(1.0 - squares @ share, 1e-12)
            errors.append(np.sqrt(np.mean(((Q - self.U @ (share[:, None] * C)) / left[:, None]) ** 2)))
        return np.array(errors)


def states_needed(p_i: int, p_j: int) -> int:
    """States on which an angle between spans of p_i and p_j features means something.

    On n <= max(p_i, p_j) states the larger span is all of R^n, and every angle is 0.
    """
    return 2 * (p_i + p_j)


def span(X: Array, rtol: float | None = None) -> Array:
    """An orthonormal basis (n, r) of the span of the features on n states."""
    return Spectrum(X, rtol).U


def principal_angles(U: Array, V: Array) -> Array:
    """Angles between two spans with orthonormal bases U and V, in the inner product sum_l f(s_l) g(s_l), ascending.

    By the cosines, so to about 1e-8.
    """
    for basis in (U, V):
        if len(basis) < states_needed(U.shape[1], V.shape[1]):
            raise ValueError(
                f"n={len(basis)} states are too few for angles between spans of {U.shape[1]} and {V.shape[1]} "
                f"dimensions: at least {states_needed(U.shape[1], V.shape[1])} are needed"
            )
    return np.arccos(np.clip(scipy.linalg.svdvals(U.T @ V), 0.0, 1.0))


def misalignment(U: Array, V: Array) -> float:
    """||(I - Pi_U) Pi_V||: how much of some function of V's span is outside U's. 1 if V's has more dimensions."""
    angles = principal_angles(U, V)
    return 1.0 if V.shape[1] > U.shape[1] else float(np.sin(angles[-1]))
