"""The ridge solve that compiles a teacher's values at the anchors into a readout W.

W = argmin ||Re(X W) - Q||^2 + lam ||W||^2,      X (m, D) real or complex, Q (m, A) real
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)


def stacked(X: Array) -> Array:
    """Return real features (m, p) with the same span as X: `Re(X W) = [Re X, -Im X] [Re W; Im W]`."""
    return np.hstack([X.real, -X.imag]) if np.iscomplexobj(X) else X


def smaller_gram(X: Any) -> Array:
    """Return X^T X or X X^T, whichever is smaller, of real features X (m, p), which may be a sparse matrix of scipy."""
    m, p = X.shape
    G = X.T @ X if p <= m else X @ X.T
    return np.asarray(G.toarray() if scipy.sparse.issparse(G) else G)


class Ridge:
    """The factorised ridge problem at one client's anchors, which is reused every round.

    With p real features (p = D, or 2D for complex X):

      primal, p <= m:  W = (X^T X + lam I)^-1 X^T Q
      dual,   m < p:   W = X^T (X X^T + lam I)^-1 Q

    For complex X the matrix of the dual is Re(X X^H): the imaginary part of X W is free, so it must not be penalised.
    If lam is 0, or so small that it is lost in rounding, the thin SVD (the pseudo-inverse) is used instead.

    Args:
        X: The features (m, D) at the anchors, real or complex, or a sparse matrix of scipy.
        lam: The ridge, at least 0.
    """

    def __init__(self, X: Any, lam: float) -> None:
        if not (np.isfinite(lam) and lam >= 0):
            raise ValueError(f"lam={lam} must be a number of at least 0")
        self.X = X
        self.lam = lam
        real: Any = X if scipy.sparse.issparse(X) else np.asarray(stacked(X), dtype=np.float64)
        m, p = real.shape
        self._real = real
        self.primal = p <= m
        self._svd: tuple[Array, Array, Array] | None = None
        G = smaller_gram(real)
        G[np.diag_indices_from(G)] += lam
        try:
            # Below this threshold, G + lam I may be singular up to rounding. The solution of the dual also contains the
            # part of Q that X cannot express, divided by lam; X^T cancels it only up to eps trace(G) / lam.
            if lam <= (EPS * max(m, p) if self.primal else 1e-6) * np.trace(G):
                raise np.linalg.LinAlgError
            # G is symmetric, and its transpose is in Fortran order, which saves LAPACK a copy.
            self._cholesky = scipy.linalg.cho_factor(G.T, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            dense = real.toarray() if scipy.sparse.issparse(X) else real
            self._svd = scipy.linalg.svd(dense, full_matrices=False, check_finite=False)

    def solve(self, Q: Array) -> Array:
        """Return W (D, A) for values Q (m, A) at the anchors."""
        X = self._real
        if self._svd is not None:
            U, sv, Vt = self._svd
            # s / (s^2 + lam). Directions with s below the rounding error of the largest s are noise and left out.
            keep = sv > EPS * max(X.shape) * sv[0]
            gain = np.where(keep, sv, 0.0) / np.where(keep, sv**2 + self.lam, 1.0)
            W = Vt.T @ (gain[:, None] * (U.T @ Q))
        elif self.primal:
            W = scipy.linalg.cho_solve(self._cholesky, X.T @ Q, check_finite=False)
        else:
            W = X.T @ scipy.linalg.cho_solve(self._cholesky, Q, check_finite=False)
        if np.iscomplexobj(self.X):
            D = self.X.shape[1]
            return W[:D] + 1j * W[D:]
        return W


def compile_teacher(X: Array, Q: Array, lam: float) -> Array:
    """Return W = argmin ||Re(X W) - Q||^2 + lam ||W||^2, (D, A), for features X (m, D) and values Q (m, A)."""
    return Ridge(X, lam).solve(Q)


def objective(X: Array, W: Array, Q: Array, lam: float, W0: Array | float = 0.0) -> float:
    """Return ||Re(X W) - Q||^2 + lam ||W - W0||^2, which compilation minimises (W0 = 0 with compile=overwrite)."""
    return float(np.sum(((X @ W).real - Q) ** 2) + lam * np.sum(np.abs(W - W0) ** 2))
