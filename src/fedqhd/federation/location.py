"""Robust estimates of location: the centre of the clients' arrays, and which clients are far from it.

Values at anchors are comparable whatever the encoders, so these estimates also work across different encoders. Unless
stated otherwise, P has one row per client, (N, d).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedqhd.core.protocols import Array

TOLERANCE = {"values": 10.0, "advantages": 2.5}
"""`auto` leaves out a reply that is further from the centre than this many median distances. The bound on advantages is
tighter: honest clients may learn the value of a state at different times, but they must agree on the better action."""
TRIM = 0.2
"""The share of the clients that a trimmed mean cuts off at either end."""
STEPS = 50
"""Iterations of Weiszfeld's algorithm. It converges linearly, and an error of a few percent of the spread would do."""


def real_rows(P: Array) -> Array:
    """Return an array (N, ...) as real rows (N, d); a complex number becomes two columns."""
    flat = np.ascontiguousarray(P).reshape(len(P), -1)
    return flat.view(np.float64) if np.iscomplexobj(P) else flat


def median(P: Array) -> Array:
    """Return the median of each coordinate, (d,)."""
    return np.median(P, axis=0)


def trimmed_mean(P: Array) -> Array:
    """Return the mean of each coordinate, (d,), without the lowest and the highest share TRIM of the values."""
    cut = min(int(np.ceil(TRIM * len(P))), (len(P) - 1) // 2)
    return np.sort(P, axis=0)[cut : len(P) - cut].mean(axis=0)


def centred(P: Array) -> Array:
    """Return the rows less their median, so that small distances between clients are not lost in rounding."""
    return P - np.median(P, axis=0)


def weiszfeld(P: Array) -> tuple[Array, Array]:
    """Compute the geometric median u^T P = argmin_c sum_i |P_i - c| by Weiszfeld's algorithm.

    With G = P P^T, |P_i - u^T P|^2 = G_ii - 2 (G u)_i + u^T G u. G is formed only if there are fewer clients than
    coordinates, so that time and memory grow with the number of clients, not with its square.

    Returns:
        The clients' shares u, (N,), and their distances from the geometric median, (N,).
    """
    P = centred(P)
    N, coordinates = P.shape
    G = P @ P.T if coordinates >= N else None
    squares = np.einsum("ij,ij->i", P, P) if G is None else np.diag(G)

    def distances(u: Array) -> Array:
        Gu = P @ (u @ P) if G is None else G @ u
        return np.sqrt(np.maximum(squares - 2 * Gu + u @ Gu, 0.0))

    u = np.full(N, 1.0 / N)
    for _ in range(STEPS):
        d = distances(u)
        u = 1.0 / np.maximum(d, 1e-9 * d.max() or 1.0)
        u /= u.sum()
    return u, distances(u)


def geometric_median(P: Array) -> Array:
    """Return argmin_c sum_i |P_i - c|, (d,): in function space, the function with the least total distance."""
    return weiszfeld(P)[0] @ P


def values_and_advantages(arrays: Sequence[Array]) -> dict[str, Array]:
    """Split arrays into their mean over actions (the last axis) and the remainder, each as rows (N, d).

    Both parts are linear in the array, so the split applies to weights (D, A) as well as to values at anchors (m, A).
    """
    values = [P.mean(axis=-1, keepdims=True) if P.ndim > 2 else P for P in arrays]
    rest = [P - V for P, V in zip(arrays, values, strict=True)]
    return {name: np.hstack([real_rows(P) for P in x]) for name, x in (("values", values), ("advantages", rest))}


def near_the_centre(arrays: Sequence[Array], tolerance: Mapping[str, float] = TOLERANCE) -> Array:
    """Select the clients within `tolerance` median distances of the geometric median, in values and in advantages.

    This is the first step of a reweighted mean (Rousseeuw and Leroy, 1987). The centre and the median distance are
    reliable as long as most clients are honest. If all clients roughly agree, all are kept, and the aggregate is the
    plain mean. Each part keeps more than half of the clients, so at least one client is always kept.

    Returns:
        A boolean mask (N,).
    """
    kept = np.ones(len(arrays[0]), bool)
    for part, P in values_and_advantages(arrays).items():
        # If most clients sent identical arrays, they have learned nothing yet, and there are no outliers.
        if 2 * (np.median(P, axis=0) == P).all(axis=1).sum() <= len(P):
            d = weiszfeld(P)[1]
            kept &= d <= tolerance[part] * np.median(d)
    return kept


def multi_krum(arrays: Sequence[Array]) -> Array:
    """Select the N - f clients that are closest to their N - f - 2 nearest neighbours (Blanchard et al., 2017).

    f is the largest number of liars that the rule tolerates.

    Returns:
        A boolean mask (N,).
    """
    P = centred(np.hstack([real_rows(x) for x in arrays]))
    G, N = P @ P.T, len(P)
    f = max((N - 3) // 2, 0)
    squares = np.diag(G)[:, None] + np.diag(G) - 2 * G
    np.fill_diagonal(squares, -np.inf)  # a client sorts first among its own neighbours and is skipped
    scores = np.sort(squares, axis=1)[:, 1 : max(N - f - 1, 1)].sum(axis=1)
    kept = np.zeros(N, bool)
    kept[np.argsort(scores, kind="stable")[: N - f]] = True
    return kept
