"""The geometry of features on a sample of states: their spectrum, and the angles between the spans of two encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedqhd.linalg.ridge import smaller_gram, stacked

Array = NDArray[Any]


def largest_eigenvalue(X: Any) -> float:
    """Return lambda_max of E[Phi Phi^T] over the rows of X (m, D), with complex features as pairs of real ones.

    A summed minibatch of B is stable while eta B lambda_max < 2.
    """
    G = smaller_gram(stacked(X))
    return float(scipy.linalg.eigvalsh(G, subset_by_index=[len(G) - 1, len(G) - 1])[0]) / X.shape[0]


def normalised_step(fraction: float, B: int, X: Any) -> float:
    """Return the eta for which eta B lambda_max = fraction, so that all bandwidths learn equally fast.

    Where the features of states are nearly orthogonal (symbols, one-hot vectors), lambda_max is small, and a single
    step would overshoot: it changes Q at its own state by eta |Phi|^2 delta. So eta |Phi|^2 is at most `fraction`, too.

    Args:
        fraction: The wanted product. Below 2, minibatches are stable.
        B: Transitions in a minibatch.
        X: Features (m, D) of a sample of states; they may be a sparse matrix of scipy.
    """
    steepest = max(B * largest_eigenvalue(X), float(np.max(np.sum(np.abs(X) ** 2, axis=1))))
    return fraction / max(steepest, np.finfo(float).tiny)


def gram(X: Array) -> Array:
    """Return G = Re(X X^H), (m, m)."""
    real = stacked(X)
    return real @ real.T


def stacked_weights(W: Array) -> Array:
    """Return real weights (p, A) for the columns of `stacked(X)`: Re(X W) = stacked(X) stacked_weights(W)."""
    return np.vstack([W.real, W.imag]) if np.iscomplexobj(W) else np.asarray(W, np.float64)


class Spectrum:
    """The thin SVD of a client's features at the anchors, X = U diag(s) V^T.

    G = X X^T has the eigenvalues s^2. Directions with s <= rtol s_max are treated as rounding errors and left out. The
    rank depends on this threshold, so it is kept as the attribute `rtol`. No D x D matrix is formed and, apart from the
    SVD, no m x m matrix either.

    Args:
        X: The features (m, D), real or complex.
        rtol: The threshold; by default the machine epsilon times the larger dimension of the real features.

    Raises:
        ValueError: If X is not finite or has rank 0.
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
            raise ValueError(f"the features at the {self.m} anchors have rank 0: no teacher can be compiled from them")
        self.U, self.s, self.Vt = U[:, : self.rank], s[: self.rank], Vt[: self.rank]

    @property
    def gamma(self) -> float:
        """The smallest positive eigenvalue of G."""
        return float(self.s[-1] ** 2)

    @property
    def condition(self) -> float:
        """The ratio of the largest to the smallest positive eigenvalue of G."""
        return float((self.s[0] / self.s[-1]) ** 2)

    def effective_rank(self, lam: float) -> float:
        """Return tr(G (G + lam I)^-1), the number of directions that the anchors determine despite the ridge."""
        return float(np.sum(self.s**2 / (self.s**2 + lam)))

    def solve(self, Q: Array, lam: float) -> Array:
        """Return (X^T X + lam I)^-1 X^T Q as real weights (p, A); lam = 0 gives the pseudo-inverse."""
        return self.Vt.T @ ((self.s / (self.s**2 + lam))[:, None] * (self.U.T @ Q))

    def visible_weights(self, W: Array) -> Array:
        """Return the projection of real weights (p, A) onto row(X), the part that the anchors determine."""
        return self.Vt.T @ (self.Vt @ W)

    def shrunk(self, W: Array, lam: float) -> Array:
        """Return lam (X^T X + lam I)^-1 times the part of W (p, A) in row(X), which is what the ridge removes."""
        return self.Vt.T @ ((lam / (self.s**2 + lam))[:, None] * (self.Vt @ W))

    def visible_values(self, Q: Array) -> Array:
        """Return P Q, the part of values Q (m, A) at the anchors that X can express; compilation ignores the rest."""
        return self.U @ (self.U.T @ Q)

    def leave_one_out(self, Q: Array, lams: Array) -> Array:
        """Return the root mean square leave-one-out error at the anchors for each lam, computed from the same SVD.

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
    """Return how many states are needed for meaningful angles between the spans of p_i and p_j features.

    On n <= max(p_i, p_j) states the larger span is all of R^n, and every angle is 0.
    """
    return 2 * (p_i + p_j)


def span(X: Array, rtol: float | None = None) -> Array:
    """Return an orthonormal basis (n, r) of the span of features X on n states."""
    return Spectrum(X, rtol).U


def principal_angles(U: Array, V: Array) -> Array:
    """Return the angles between two spans with orthonormal bases U and V in ascending order.

    The inner product is sum_l f(s_l) g(s_l). The angles are computed from their cosines, so they are accurate to about
    1e-8. Raises ValueError if there are too few states; see `states_needed`.
    """
    for basis in (U, V):
        if len(basis) < states_needed(U.shape[1], V.shape[1]):
            raise ValueError(
                f"n={len(basis)} states are too few for angles between spans of {U.shape[1]} and {V.shape[1]} "
                f"dimensions: at least {states_needed(U.shape[1], V.shape[1])} are needed"
            )
    return np.arccos(np.clip(scipy.linalg.svdvals(U.T @ V), 0.0, 1.0))


def misalignment(U: Array, V: Array) -> float:
    """Return ||(I - Pi_U) Pi_V||, the largest distance of a unit vector in the span of V from the span of U.

    It is 1 if V has more dimensions than U.
    """
    angles = principal_angles(U, V)
    return 1.0 if V.shape[1] > U.shape[1] else float(np.sin(angles[-1]))
