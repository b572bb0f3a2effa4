"""What it would save to update the factors of least squares, or to reuse those of anchors, instead of rebuilding them.

    python benchmarks/factors.py

A fit factorises X^T X + lam I (p x p, single precision) after k new rows. With the factor of before, each solve with
the new matrix could instead be corrected by k columns (Woodbury). Half of the anchors that follow the teacher stay, so
a quarter of X X^T (m x m, double precision) is known. All times are in milliseconds, on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

REPEATS = 9
ROWS = 4000


def milliseconds(work: Callable[[], Any]) -> float:
    """Return the median CPU time of a call."""
    spent = []
    for _ in range(REPEATS + 1):
        began = process_time()
        work()
        spent.append(process_time() - began)
    return 1e3 * float(np.median(spent[1:]))


def fit(p: int, k: int) -> tuple[float, float]:
    """Return the time of a new factor, and that of a correction of the old one and of ten solves with it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, p)).astype(np.float32) / np.float32(np.sqrt(p))
    new = X[:k]
    G = np.asfortranarray(X.T @ X) + np.float32(0.3) * np.eye(p, dtype=np.float32, order="F")
    L = scipy.linalg.cholesky(G, lower=True)

    def corrected() -> None:
        V = scipy.linalg.solve_triangular(L, new.T, lower=True, check_finite=False)
        S = scipy.linalg.cholesky(np.eye(k, dtype=np.float32) + V.T @ V, lower=True, check_finite=False)
        for _ in range(10):
            z = V.T @ V[:, 0]
            V @ scipy.linalg.cho_solve((S, True), z, check_finite=False)

    return milliseconds(lambda: scipy.linalg.cho_factor(G, lower=True, check_finite=False)), milliseconds(corrected)


def anchors(m: int, p: int) -> tuple[float, float, float]:
    """Return the times of X X^T, of the same with a quarter that is known, and of its factor."""
    X = np.random.default_rng(0).standard_normal((m, p)) / np.sqrt(p)
    K = X @ X.T
    kept, half = np.random.default_rng(1).permutation(m)[: m // 2], m // 2

    def partly() -> None:
        known = np.empty((m, m))
        known[:half, :half] = K[np.ix_(kept, kept)]
        known[half:, :half] = X[half:] @ X[:half].T
        known[:half, half:] = known[half:, :half].T
        known[half:, half:] = X[half:] @ X[half:].T

    ridge = np.asfortranarray(K + 0.01 * np.eye(m))
    factor = milliseconds(lambda: scipy.linalg.cho_factor(ridge, lower=True, check_finite=False))
    return milliseconds(lambda: X @ X.T), milliseconds(partly), factor


def main() -> None:
    with threadpool_limits(1):
        print("| features p | new rows k of an action | a new factor | a correction and ten solves with it |")
        print("|---:|---:|---:|---:|")
        for p in (500, 1000, 2000):
            for k in (50, 200, 500):
                print(f"| {p:,} | {k} | {' | '.join(f'{x:.1f}' for x in fit(p, k))} |")
        print("\n| anchors m | features p | X X^T | the same with the known quarter | its factor |")
        print("|---:|---:|---:|---:|---:|")
        for m, p in ((500, 1000), (1000, 1000), (1000, 2000)):
            print(f"| {m:,} | {p:,} | {' | '.join(f'{x:.1f}' for x in anchors(m, p))} |")


if __name__ == "__main__":
    main()
