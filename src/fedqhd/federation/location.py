"""Where the middle of many points is, and who is far from it: estimates of location that outliers cannot move at will.

Every function is one of the clients' arrays. On anchors Q is a common space whatever the encoders, so these work across
different ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedqhd.core.protocols import Array

TOLERANCE = {"values": 10.0, "advantages": 2.5}
"""`auto` leaves out a reply that is further from the centre than this many median distances. Honest clients may be
early or late to learn what a state is worth; which action is better they must agree on, since that is the policy."""
TRIM = 0.2
"""The share of the clients that a trimmed mean cuts off at either end."""
STEPS = 50
"""Of Weiszfeld's iteration: it converges linearly, and a centre good to a few percent of the spread would do."""


def real_rows(P: Array) -> Array:
    """(N, ...) as real rows (N, d)."""
    flat = np.ascontiguousarray(P).reshape(len(P), -1)
    return flat.view(np.float64) if np.iscomplexobj(P) else flat


def median(P: Array) -> Array:
    """Coordinate by coordinate."""
    return np.median(P, axis=0)


def trimmed_mean(P: Array) -> Array:
    """The mean of each coordinate without the lowest and the highest TRIM of the clients."""
    cut = min(int(np.ceil(TRIM * len(P))), (len(P) - 1) // 2)
    return np.sort(P, axis=0)[cut : len(P) - cut].mean(axis=0)


def gram(P: Array) -> Array:
    """(N, N): all that distances between clients need. About the median, so that these are not lost in rounding."""
    P = P - np.median(P, axis=0)
    return P @ P.T


def weiszfeld(P: Array) -> tuple[Array, Array]:
    """(u, d): shares u that make the geometric median u^T P, argmin_c sum_i |P_i - c|, and the distances to it.

    |P_i - u^T P|^2 = G_ii - 2 (G u)_i + u^T G u: the iteration needs no more than the Gram matrix of the clients.
    """
    G = gram(P)
    u = np.full(len(P), 1.0 / len(P))
    for _ in range(STEPS):
        d = np.sqrt(np.maximum(np.diag(G) - 2 * G @ u + u @ G @ u, 0.0))
        u = 1.0 / np.maximum(d, 1e-9 * d.max() or 1.0)
        u /= u.sum()
    return u, np.sqrt(np.maximum(np.diag(G) - 2 * G @ u + u @ G @ u, 0.0))


def geometric_median(P: Array) -> Array:
    """argmin_c sum_i |P_i - c|: in function space, the function nearest to all."""
    return weiszfeld(P)[0] @ P


def values_and_advantages(arrays: Sequence[Array]) -> dict[str, Array]:
    """Rows (N, d) of the mean over actions, the last axis, and of what remains when it is taken away.

    Both are linear, so of weights (D, A) as much as of values on anchors (m, A).
    """
    values = [P.mean(axis=-1, keepdims=True) if P.ndim > 2 else P for P in arrays]
    rest = [P - V for P, V in zip(arrays, values, strict=True)]
    return {name: np.hstack([real_rows(P) for P in x]) for name, x in (("values", values), ("advantages", rest))}


def near_the_centre(arrays: Sequence[Array]) -> Array:
    """The first step of a reweighted mean (Rousseeuw and Leroy, 1987): who is within TOLERANCE median distances of the
    geometric median, in values and in advantages. Centre and median distance stand as long as most are honest; and
    where all agree within reason all are kept, so that the mean stays the mean. Each part keeps more than half of the
    clients, so somebody is always kept."""
    kept = np.ones(len(arrays[0]), bool)
    for part, P in values_and_advantages(arrays).items():
        # Where most clients say the very same, they have learned nothing yet, and nobody is an outlier.
        if 2 * (np.median(P, axis=0) == P).all(axis=1).sum() <= len(P):
            d = weiszfeld(P)[1]
            kept &= d <= TOLERANCE[part] * np.median(d)
    return kept


def multi_krum(arrays: Sequence[Array]) -> Array:
    """The N - f that lie closest to their N - f - 2 nearest (Blanchard et al., 2017), f the most it can bear."""
    G = gram(np.hstack([real_rows(x) for x in arrays]))
    N = len(G)
    f = max((N - 3) // 2, 0)
    squares = np.diag(G)[:, None] + np.diag(G) - 2 * G
    np.fill_diagonal(squares, -np.inf)  # oneself comes first, and is left out
    scores = np.sort(squares, axis=1)[:, 1 : max(N - f - 1, 1)].sum(axis=1)
    kept = np.zeros(N, bool)
    kept[np.argsort(scores, kind="stable")[: N - f]] = True
    return kept
