"""Normal equations per action: what fitted Q-iteration solves, and what it says of its own certainty.

For the rows X_a of the states in which action a was taken,

    w_a = argmin ||X_a w - y||^2 + lam ||w - v_a||^2 = v_a + (X_a^T X_a + lam I)^-1 X_a^T (y - X_a v_a).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK = 1024


def add_grams(G: Array, X: Array, a: Array) -> Array:
    """G_a += X_a^T X_a for each action, G (A, p, p) in double precision. Rows with a < 0 belong to none.

    A block's products are summed in the precision of X, blocks in double: an error of 1e-7 in entries of at most
    BLOCK / p, far below any useful lam. Whole numbers up to 127 have no error at all.
    """
    for lo in range(0, len(X), BLOCK):
        for k, gram in enumerate(grams(X[lo : lo + BLOCK], a[lo : lo + BLOCK], len(G))):
            if gram is not None:
                G[k] += gram
    return G


def grams(X: Array, a: Array, actions: int) -> Iterator[Array | None]:
    """X_a^T X_a for each action, in the precision of X, one in memory at a time; None for one without rows."""
    for k in range(actions):
        rows = X[a == k].astype(np.result_type(X.dtype, np.float32), copy=False)
        yield rows.T @ rows if len(rows) else None


class NormalEquations:
    """X_a^T X_a of rows that only ever grow in number, each whole block of them added once.

    The rest, less than a block, is added anew at each factorisation. So the sums depend on the rows alone, not on
    when they were asked for, and rebuilding from the rows gives the same bits.
    """

    def __init__(self, actions: int, p: int, scale: float = 1.0) -> None:
        self.G = np.zeros((actions, p, p))
        self.scale = scale
        """Of the rows, which may be kept as whole numbers."""
        self.rows = 0

    def reset(self) -> None:
        self.G[:] = 0.0
        self.rows = 0

    def absorb(self, X: Array, a: Array, dtype: type[np.floating[Any]] = np.float64) -> Array:
        """X_a^T X_a of all the given rows times the scale, of which the first `self.rows` are known."""
        whole = len(X) // BLOCK * BLOCK
        add_grams(self.G, X[self.rows : whole], a[self.rows : whole])
        self.rows = whole
        G = np.empty(self.G.shape, dtype)
        for known, rest, total in zip(self.G, grams(X[whole:], a[whole:], len(G)), G, strict=True):
            # One pass from double precision to what is wanted: these matrices are larger than the cache.
            np.add(known, 0.0 if rest is None else rest, out=total, casting="same_kind")
        if self.scale != 1:
            G *= G.dtype.type(self.scale**2)
        return G


class Factors:
    """Cholesky factors of G_a + lam I, in the precision of G. They are made in place of G, which is used up."""

    def __init__(self, G: Array, lam: float) -> None:
        self.lam = lam
        self.cholesky = []
        for gram in G:
            H = gram.T  # symmetric, but only this is in LAPACK's order
            H[np.diag_indices_from(H)] += H.dtype.type(lam)
            factor = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
            pivots = np.diagonal(factor[0]) ** 2
            # Pivots lost in rounding: positive definite only by luck.
            if pivots.min() <= np.finfo(H.dtype).eps * len(H) * pivots.max():
                raise np.linalg.LinAlgError("rank-deficient")
            self.cholesky.append(factor)

    def solve(self, B: Array) -> Array:
        """Column a of B (p, A) solved with the matrix of action a."""
        own = B.T.astype(self.cholesky[0][0].dtype)
        columns = [scipy.linalg.cho_solve(c, b, check_finite=False) for c, b in zip(self.cholesky, own, strict=True)]
        return np.stack(columns, axis=1).astype(B.dtype)

    def sketch(self, S: Array) -> Array:
        """S L_a^-1, (A, k, p), for S (k, p) with independent entries of mean 0 and variance 1 / k.

        Then |S L_a^-1 phi|^2 is phi^T (G_a + lam I)^-1 phi on average, and within sqrt(2 / k) of it mostly, at the cost
        of k inner products instead of p (Johnson and Lindenstrauss).
        """
        wide = S.T.astype(self.cholesky[0][0].dtype)
        return np.stack(
            [scipy.linalg.solve_triangular(c, wide, lower=True, trans="T", check_finite=False).T
             for c, _ in self.cholesky]
        )  # fmt: skip

    def uncertainty(self, X: Array) -> Array:
        """lam phi^T (G_a + lam I)^-1 phi / |phi|^2 for each row and action, in (0, 1].

        The share of a state's prior variance that the data has left: 1 where nothing like it was met, lam / (lam + k c)
        after k visits to a state with |phi|^2 = c. As D grows it tends to a Gaussian process's posterior variance over
        its prior's, so clients with different encoders can be compared.
        """
        X = X.astype(self.cholesky[0][0].dtype)
        half = [scipy.linalg.solve_triangular(c, X.T, lower=True, check_finite=False) for c, _ in self.cholesky]
        share = np.stack([np.einsum("ij,ij->j", h, h) for h in half], axis=1)
        return self.lam * share / np.einsum("ij,ij->i", X, X)[:, None]


def leave_one_out(G: Array, b: Array, X: Array, y: Array, lams: Array) -> Array:
    """Mean squared leave-one-out error at the rows (X, y) for each lam, from one eigendecomposition.

    G = X^T X and b = X^T y are of all rows of the fit; X and y may be a part of them. With H the hat matrix, the error
    at row i of the fit without it is e_i / (1 - H_ii).
    """
    s, U = scipy.linalg.eigh(G, check_finite=False)
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
