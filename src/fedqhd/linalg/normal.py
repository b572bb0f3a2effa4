"""Normal equations for each action, which fitted Q-iteration solves, and the uncertainty of their solution.

For the rows X_a of the states in which action a was taken, they are

    w_a = argmin ||X_a w - y||^2 + lam ||w - v_a||^2 = v_a + (X_a^T X_a + lam I)^-1 X_a^T (y - X_a v_a).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

BLOCK = 128
"""Rows that are added at a time. The fewer they are, the fewer rows of an incomplete block are added again and again; a
block of 128 takes hardly longer per row than one of 512."""


def add_grams(G: Array, X: Array, a: Array) -> Array:
    """Add X_a^T X_a to G_a for each action, in place, and return G.

    Only the upper triangles of G (A, p, p) are updated, which halves the work. Rows with a < 0 belong to no action.
    """
    syrk = scipy.linalg.get_blas_funcs("syrk", dtype=G.dtype)
    for lo in range(0, len(X), BLOCK):
        block, chosen = X[lo : lo + BLOCK], a[lo : lo + BLOCK]
        for k, gram in enumerate(G):
            rows = block[chosen == k].astype(G.dtype, copy=False)
            if len(rows):  # the upper triangle in C order is the lower one in Fortran order
                syrk(1.0, rows.T, beta=1.0, c=gram.T, lower=True, overwrite_c=True)
    return G


def symmetrised(G: Array) -> Array:
    """Return the symmetric matrices (A, p, p) whose upper triangles are those of G."""
    return np.triu(G) + np.swapaxes(np.triu(G, 1), 1, 2)


class NormalEquations:
    """The upper triangles of X_a^T X_a for rows to which more are appended over time.

    Each complete block of rows is added once; the remaining rows are added again at each call of `absorb`. The sums
    therefore depend only on the rows, not on when they were computed, and rebuilding them gives the same bits.
    """

    def __init__(self, actions: int, p: int, scale: float = 1.0, dtype: DTypeLike = np.float64) -> None:
        self.G: Array = np.zeros((actions, p, p), dtype)
        """In the precision of the factorisation, because a sum in single precision is no less accurate than that."""
        self.scale = scale
        """The factor by which rows that are stored as integers have to be multiplied."""
        self.rows = 0
        """Number of rows that are already part of G."""
        self._whole = np.empty_like(self.G)

    def reset(self) -> None:
        """Forget all rows."""
        self.G[:] = 0.0
        self.rows = 0

    def absorb(self, X: Array, a: Array) -> Array:
        """Return X_a^T X_a (A, p, p) of the scaled rows X with actions a, of which the first `self.rows` are known.

        The next call overwrites what this one returned, since new memory for it would take longer than the sums.
        """
        known = len(X) // BLOCK * BLOCK
        add_grams(self.G, X[self.rows : known], a[self.rows : known])
        self.rows = known
        np.copyto(self._whole, self.G)
        G = add_grams(self._whole, X[known:], a[known:])
        if self.scale != 1:
            G *= G.dtype.type(self.scale**2)
        return G


class Factors:
    """Cholesky factors of G_a + lam I, computed from the upper triangles of G and in its precision.

    G is overwritten. Raises `numpy.linalg.LinAlgError` if a matrix is singular in that precision.
    """

    def __init__(self, G: Array, lam: float) -> None:
        self.lam = lam
        self.cholesky = []
        for gram in G:
            H = gram.T  # in Fortran order, in which it is the lower triangle
            H[np.diag_indices_from(H)] += H.dtype.type(lam)
            factor, _ = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
            pivots = np.diagonal(factor) ** 2
            # The smallest pivot is within rounding error: the matrix is not reliably positive definite.
            if pivots.min() <= np.finfo(H.dtype).eps * len(H) * pivots.max():
                raise np.linalg.LinAlgError("rank-deficient")
            self.cholesky.append(factor)

    def solve(self, B: Array) -> Array:
        """Solve for each column a of B (p, A) with the matrix of action a."""
        right = B.T.astype(self.cholesky[0].dtype)
        trsv = scipy.linalg.get_blas_funcs("trsv", dtype=right.dtype)  # six times as fast as cho_solve
        half = [trsv(L, b, lower=True) for L, b in zip(self.cholesky, right, strict=True)]
        columns = [trsv(L, b, lower=True, trans=True) for L, b in zip(self.cholesky, half, strict=True)]
        return np.stack(columns, axis=1).astype(B.dtype)

    def sketch(self, S: Array) -> Array:
        """Return S L_a^-1, (A, k, p), for S (k, p) with independent entries of mean 0 and variance 1 / k.

        The mean of |S L_a^-1 phi|^2 is phi^T (G_a + lam I)^-1 phi and its relative standard deviation about
        sqrt(2 / k), at the cost of k inner products instead of p (Johnson and Lindenstrauss).
        """
        wide = S.T.astype(self.cholesky[0].dtype)
        return np.stack(
            [scipy.linalg.solve_triangular(L, wide, lower=True, trans="T", check_finite=False).T
             for L in self.cholesky]
        )  # fmt: skip

    def uncertainty(self, X: Array) -> Array:
        """Return lam phi^T (G_a + lam I)^-1 phi / |phi|^2 for each row phi of X and each action, (B, A) in (0, 1].

        This is the ratio of posterior to prior variance: 1 if no similar state was visited, and lam / (lam + k c) after
        k visits to a state with |phi|^2 = c. As D grows, it tends to that ratio for a Gaussian process, so clients with
        different encoders can be compared.
        """
        X = X.astype(self.cholesky[0].dtype)
        half = [scipy.linalg.solve_triangular(L, X.T, lower=True, check_finite=False) for L in self.cholesky]
        share = np.stack([np.einsum("ij,ij->j", h, h) for h in half], axis=1)
        return self.lam * share / np.einsum("ij,ij->i", X, X)[:, None]


def leave_one_out(G: Array, b: Array, X: Array, y: Array, lams: Array) -> Array:
    """Return the mean squared leave-one-out error at the rows (X, y) for each lam, from one eigendecomposition.

    G = X^T X (only its upper triangle is read) and b = X^T y are sums over all rows of the fit, whereas X and y may be
    some of these rows. With H the hat matrix, the error at row i of the fit without it is e_i / (1 - H_ii).
    """
    s, U = scipy.linalg.eigh(G, lower=False, check_finite=False)
    Z, c = X.astype(np.float64) @ U, U.T @ b
    errors = []
    for lam in lams:
        gain = 1.0 / (np.maximum(s, 0.0) + lam)
        errors.append(np.mean(((y - Z @ (gain * c)) / np.maximum(1.0 - (Z * Z) @ gain, 1e-12)) ** 2))
    return np.array(errors)


class ConjugateGradients:
    """An iterative solver of (X_a^T X_a + lam I) S_a = B_a for features too many for p x p matrices.

    Each solve starts from the last solution. All columns are solved at once, because one pass over the rows serves all
    actions.

    Args:
        times: Maps P (p, A) to the columns X_a^T X_a P_a.
        shape: (p, A).
        lam: The ridge.
        steps: Iterations of each solve.
    """

    def __init__(self, times: Callable[[Array], Array], shape: tuple[int, int], lam: float, steps: int) -> None:
        self.times, self.lam, self.steps = times, lam, steps
        self.last = np.zeros(shape)

    def _times(self, P: Array) -> Array:
        return self.times(P) + self.lam * P

    def solve(self, B: Array) -> Array:
        """Return the approximate solution S (p, A) for right-hand sides B (p, A)."""
        S = self.last
        R = B - self._times(S)
        P, rho = R, np.einsum("ij,ij->j", R, R)
        for _ in range(self.steps):
            HP = self._times(P)
            alpha = rho / np.maximum(np.einsum("ij,ij->j", P, HP), np.finfo(float).tiny)
            S = S + alpha * P
            R = R - alpha * HP
            rho, before = np.einsum("ij,ij->j", R, R), rho
            P = R + rho / np.maximum(before, np.finfo(float).tiny) * P
        self.last = S
        return S
