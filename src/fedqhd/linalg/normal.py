"""Normal equations per action: what fitted Q-iteration solves, and what it says of its own certainty.

For the rows X_a of the states in which action a was taken,

    w_a = argmin ||X_a w - y||^2 + lam ||w - v_a||^2 = v_a + (X_a^T X_a + lam I)^-1 X_a^T (y - X_a v_a).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]

BLOCK = 512


def add_grams(G: Array, X: Array, a: Array) -> Array:
    """G_a += X_a^T X_a for each action, in the precision of G (A, p, p) and in its upper triangles alone, which is half
    the work. Rows with a < 0 belong to none."""
    syrk = scipy.linalg.get_blas_funcs("syrk", dtype=G.dtype)
    for lo in range(0, len(X), BLOCK):
        block, chosen = X[lo : lo + BLOCK], a[lo : lo + BLOCK]
        for k, gram in enumerate(G):
            rows = block[chosen == k].astype(G.dtype, copy=False)
            if len(rows):  # what is above the diagonal in our order is below it in BLAS's
                syrk(1.0, rows.T, beta=1.0, c=gram.T, lower=True, overwrite_c=True)
    return G


def whole(G: Array) -> Array:
    """Both triangles of the symmetric matrices whose upper ones are given."""
    return np.triu(G) + np.swapaxes(np.triu(G, 1), 1, 2)


class NormalEquations:
    """The upper triangles of X_a^T X_a, of rows that only ever grow in number, each whole block of them added once.

    The rest, less than a block, is added anew at each factorisation. So the sums depend on the rows alone, not on
    when they were asked for, and rebuilding from the rows gives the same bits.
    """

    def __init__(self, actions: int, p: int, scale: float = 1.0, dtype: DTypeLike = np.float64) -> None:
        self.G: Array = np.zeros((actions, p, p), dtype)
        """As precise as their factors: a sum in single precision is off by no more than a factorisation."""
        self.scale = scale
        """Of the rows, which may be kept as whole numbers."""
        self.rows = 0

    def reset(self) -> None:
        self.G[:] = 0.0
        self.rows = 0

    def absorb(self, X: Array, a: Array) -> Array:
        """X_a^T X_a of all the given rows times the scale, of which the first `self.rows` are known."""
        known = len(X) // BLOCK * BLOCK
        add_grams(self.G, X[self.rows : known], a[self.rows : known])
        self.rows = known
        G = add_grams(self.G.copy(), X[known:], a[known:])
        if self.scale != 1:
            G *= G.dtype.type(self.scale**2)
        return G


class Factors:
    """Cholesky factors of G_a + lam I, of G's upper triangles and in its precision. They are made in place of G, which
    is used up."""

    def __init__(self, G: Array, lam: float) -> None:
        self.lam = lam
        self.cholesky = []
        for gram in G:
            H = gram.T  # in LAPACK's order, in which it has the lower triangle
            H[np.diag_indices_from(H)] += H.dtype.type(lam)
            factor, _ = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
            pivots = np.diagonal(factor) ** 2
            # Pivots lost in rounding: positive definite only by luck.
            if pivots.min() <= np.finfo(H.dtype).eps * len(H) * pivots.max():
                raise np.linalg.LinAlgError("rank-deficient")
            self.cholesky.append(factor)

    def solve(self, B: Array) -> Array:
        """Column a of B (p, A) solved with the matrix of action a; trsv takes a sixth of the time of cho_solve."""
        own = B.T.astype(self.cholesky[0].dtype)
        trsv = scipy.linalg.get_blas_funcs("trsv", dtype=own.dtype)
        half = [trsv(L, b, lower=True) for L, b in zip(self.cholesky, own, strict=True)]
        columns = [trsv(L, b, lower=True, trans=True) for L, b in zip(self.cholesky, half, strict=True)]
        return np.stack(columns, axis=1).astype(B.dtype)

    def sketch(self, S: Array) -> Array:
        """S L_a^-1, (A, k, p), for S (k, p) with independent entries of mean 0 and variance 1 / k.

        Then |S L_a^-1 phi|^2 is phi^T (G_a + lam I)^-1 phi on average, and within sqrt(2 / k) of it mostly, at the cost
        of k inner products instead of p (Johnson and Lindenstrauss).
        """
        wide = S.T.astype(self.cholesky[0].dtype)
        return np.stack(
            [scipy.linalg.solve_triangular(L, wide, lower=True, trans="T", check_finite=False).T
             for L in self.cholesky]
        )  # fmt: skip

    def uncertainty(self, X: Array) -> Array:
        """lam phi^T (G_a + lam I)^-1 phi / |phi|^2 for each row and action, in (0, 1].

        The share of a state's prior variance that the data has left: 1 where nothing like it was met, lam / (lam + k c)
        after k visits to a state with |phi|^2 = c. As D grows it tends to a Gaussian process's posterior variance over
        its prior's, so clients with different encoders can be compared.
        """
        X = X.astype(self.cholesky[0].dtype)
        half = [scipy.linalg.solve_triangular(L, X.T, lower=True, check_finite=False) for L in self.cholesky]
        share = np.stack([np.einsum("ij,ij->j", h, h) for h in half], axis=1)
        return self.lam * share / np.einsum("ij,ij->i", X, X)[:, None]


def leave_one_out(G: Array, b: Array, X: Array, y: Array, lams: Array) -> Array:
    """Mean squared leave-one-out error at the rows (X, y) for each lam, from one eigendecomposition.

    G = X^T X (of which the upper triangle is read) and b = X^T y are of all rows of the fit; X and y may be a part of
    them. With H the hat matrix, the error at row i of the fit without it is e_i / (1 - H_ii).
    """
    s, U = scipy.linalg.eigh(G, lower=False, check_finite=False)
    Z, c = X.astype(np.float64) @ U, U.T @ b
    errors = []
    for lam in lams:
        gain = 1.0 / (np.maximum(s, 0.0) + lam)
        errors.append(np.mean(((y - Z @ (gain * c)) / np.maximum(1.0 - (Z * Z) @ gain, 1e-12)) ** 2))
    return np.array(errors)


class ConjugateGradients:
    """The same systems where p x p is too large: a few steps from the last solution on, given P -> X_a^T X_a P_a.

    The columns are solved side by side, since a pass over the rows serves all actions.
    """

    def __init__(self, times: Callable[[Array], Array], shape: tuple[int, int], lam: float, steps: int) -> None:
        self.times, self.lam, self.steps = times, lam, steps
        self.last = np.zeros(shape)

    def _times(self, P: Array) -> Array:
        return self.times(P) + self.lam * P

    def solve(self, B: Array) -> Array:
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
