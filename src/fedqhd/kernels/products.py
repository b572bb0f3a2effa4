"""Dot products of features with weights, and sums of features into weights, several at a time.

An element that several products share is loaded and converted to the type of the weights only once.
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit
from fedqhd.kernels.calls import keep_apart

STORED_BLOCK = 4096
"""Stored components that are read at a time. There are more than in `encode.BLOCK`, because most are int8."""


@jit
def dot(x, y):
    """Return x . y."""
    total = y.dtype.type(0)
    for d in range(x.shape[0]):
        total += y.dtype.type(x[d]) * y[d]
    return total


@jit
def value(x, w):
    """Return x . w, with the same bits for every kernel that calls it."""
    keep_apart()
    return dot(x, w)


@jit
def two_dots(x, y, z):
    """Return x . y and x . z."""
    xy = xz = y.dtype.type(0)
    for d in range(x.shape[0]):
        t = y.dtype.type(x[d])
        xy += t * y[d]
        xz += t * z[d]
    return xy, xz


@jit
def _four_dots(x, w0, w1, w2, w3):
    """Return the products of x with four rows of weights."""
    q0 = q1 = q2 = q3 = w0.dtype.type(0)
    for d in range(x.shape[0]):
        t = w0.dtype.type(x[d])
        q0 += t * w0[d]
        q1 += t * w1[d]
        q2 += t * w2[d]
        q3 += t * w3[d]
    return q0, q1, q2, q3


@jit
def dot_four(x0, x1, x2, x3, w):
    """Return the products of four rows of features with w."""
    q0 = q1 = q2 = q3 = w.dtype.type(0)
    for d in range(w.shape[0]):
        t = w.dtype.type
        q0 += t(x0[d]) * w[d]
        q1 += t(x1[d]) * w[d]
        q2 += t(x2[d]) * w[d]
        q3 += t(x3[d]) * w[d]
    return q0, q1, q2, q3


@jit
def eight_dots(x0, x1, x2, x3, v, w):
    """Return the products of four rows of features with v, then those with w."""
    v0 = v1 = v2 = v3 = w0 = w1 = w2 = w3 = v.dtype.type(0)
    for d in range(v.shape[0]):
        t0, t1, t2, t3 = v.dtype.type(x0[d]), v.dtype.type(x1[d]), v.dtype.type(x2[d]), v.dtype.type(x3[d])
        v0 += t0 * v[d]
        v1 += t1 * v[d]
        v2 += t2 * v[d]
        v3 += t3 * v[d]
        w0 += t0 * w[d]
        w1 += t1 * w[d]
        w2 += t2 * w[d]
        w3 += t3 * w[d]
    return v0, v1, v2, v3, w0, w1, w2, w3


@jit
def add_values(x, W, lo, hi, q):
    """Add W[:, lo:hi] x to q, several actions at a time."""
    k, actions = 0, W.shape[0]
    while k + 4 <= actions:
        q0, q1, q2, q3 = _four_dots(x, W[k, lo:hi], W[k + 1, lo:hi], W[k + 2, lo:hi], W[k + 3, lo:hi])
        q[k] += q0
        q[k + 1] += q1
        q[k + 2] += q2
        q[k + 3] += q3
        k += 4
    while k + 2 <= actions:
        q0, q1 = two_dots(x, W[k, lo:hi], W[k + 1, lo:hi])
        q[k] += q0
        q[k + 1] += q1
        k += 2
    if k < actions:
        q[k] += dot(x, W[k, lo:hi])


@jit
def add_one(w, x, c):
    """Add c x to w."""
    for d in range(w.shape[0]):
        w[d] += c * w.dtype.type(x[d])


@jit
def _add_four(w, x0, x1, x2, x3, c0, c1, c2, c3):
    """Add c0 x0 + c1 x1 + c2 x2 + c3 x3 to w, in one pass over w instead of four."""
    for d in range(w.shape[0]):
        t = w.dtype.type
        w[d] += c0 * t(x0[d]) + c1 * t(x1[d]) + c2 * t(x2[d]) + c3 * t(x3[d])


@jit
def _add_features(X, rows, chosen, step, lo, hi, w):
    """Add the sum of step_i X[rows_i, lo:hi] over the chosen i to w, four at a time."""
    whole = chosen.shape[0] // 4 * 4
    for n in range(0, whole, 4):
        h, i, j, k = chosen[n], chosen[n + 1], chosen[n + 2], chosen[n + 3]
        x0, x1, x2, x3 = X[rows[h], lo:hi], X[rows[i], lo:hi], X[rows[j], lo:hi], X[rows[k], lo:hi]
        _add_four(w, x0, x1, x2, x3, step[h], step[i], step[j], step[k])
    for i in chosen[whole:]:
        add_one(w, X[rows[i], lo:hi], step[i])


@jit
def group_places(kinds, n):
    """Return (places, many): for k < n, kinds equals k at the indices places[k, : many[k]].

    The remaining entries of places[k] are len(kinds), an index past the end, so that indices can be taken four at a
    time. Negative kinds are skipped.
    """
    B = kinds.shape[0]
    places, many = np.full((n, B + 3), B), np.zeros(n, np.intp)
    for i in range(B):
        k = kinds[i]
        if k >= 0:
            places[k, many[k]] = i
            many[k] += 1
    return places, many


@jit
def add_by_action(X, rows, places, many, step, W):
    """Add the sum of step_i X[rows_i] over the places i of action k to W_k."""
    for k in range(W.shape[0]):
        for lo in range(0, W.shape[1], STORED_BLOCK):
            hi = min(lo + STORED_BLOCK, W.shape[1])
            _add_features(X, rows, places[k, : many[k]], step, lo, hi, W[k, lo:hi])
