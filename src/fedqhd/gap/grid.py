"""Value iteration on a grid, with multilinear interpolation between its points.

Interpolated values are weighted means of values at grid points. The iteration therefore solves a finite problem, whose
transitions lead to the corners of a grid cell: it is a contraction with one fixed point, near Q* if the grid is fine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[Any]


def grid_points(axes: Sequence[Array]) -> Array:
    """Return all points of the grid, (prod len(axis), n), with the last variable changing fastest."""
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)


def interpolation(axes: Sequence[Array], points: Array) -> scipy.sparse.csr_array:
    """Return the matrix (len(points), grid) from values on the grid to values at points, clipped to the box."""
    cells, shares = [], []
    for axis, x in zip(axes, points.T, strict=True):
        x = np.clip(x, axis[0], axis[-1])
        cell = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
        cells.append(cell)
        shares.append((x - axis[cell]) / (axis[cell + 1] - axis[cell]))
    shape = tuple(len(axis) for axis in axes)
    corners = list(itertools.product((0, 1), repeat=len(axes)))
    columns = np.empty((len(points), len(corners)), np.int32)
    weights = np.empty((len(points), len(corners)), np.float32)
    for k, corner in enumerate(corners):
        columns[:, k] = np.ravel_multi_index([c + d for c, d in zip(cells, corner, strict=True)], shape)
        weights[:, k] = np.prod([t if d else 1 - t for t, d in zip(shares, corner, strict=True)], axis=0)
    rows = np.arange(len(points) + 1, dtype=np.int32) * len(corners)
    return scipy.sparse.csr_array((weights.ravel(), columns.ravel(), rows), shape=(len(points), int(np.prod(shape))))


def value_iteration(
    r: Array, discount: Array, P: Sequence[scipy.sparse.csr_array], V: Array, tol: float, sweeps: int = 5000
) -> tuple[Array, float]:
    """Iterate Q_a = r_a + discount_a P_a max_b Q_b until no value changes by more than tol.

    Args:
        r: Rewards, (grid, A).
        discount: Discounts, (grid, A); 0 where the episode terminates.
        P: For each action, the matrix from values on the grid to values at the next states (see `interpolation`).
        V: Values to start from, (grid,).
        tol: The largest change of a value at which iteration stops.
        sweeps: The number of iterations at which it stops in any case.

    Returns:
        Q, (grid, A), and the largest change of a value in the last iteration.
    """
    Q, change = np.empty_like(r), np.inf
    for _ in range(sweeps):
        for a, P_a in enumerate(P):
            Q[:, a] = r[:, a] + discount[:, a] * (P_a @ V)
        new = Q.max(axis=1)
        change = float(np.abs(new - V).max())
        V = new
        if change <= tol:
            break
    return Q, change
