"""Sweeps of least squares: the values of all stored rows, their targets, and the right-hand side of the solve."""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.actions import argmax
from fedqhd.kernels.cache import jit
from fedqhd.kernels.products import add_by_action, eight_dots, group_places, two_dots


@jit
def values(X, W, Q):
    """Write X W^T to Q. With few actions, which are the rows of W, this is faster than a general matrix product."""
    whole = X.shape[0] // 4 * 4
    for k in range(0, W.shape[0], 2):
        j = min(k + 1, W.shape[0] - 1)  # the last action of an odd number is paired with itself
        for t in range(0, whole, 4):
            v0, v1, v2, v3, w0, w1, w2, w3 = eight_dots(X[t], X[t + 1], X[t + 2], X[t + 3], W[k], W[j])
            Q[t, k], Q[t + 1, k], Q[t + 2, k], Q[t + 3, k] = v0, v1, v2, v3
            Q[t, j], Q[t + 1, j], Q[t + 2, j], Q[t + 3, j] = w0, w1, w2, w3
        for t in range(whole, X.shape[0]):
            Q[t, k], Q[t, j] = two_dots(X[t], W[k], W[j])


@jit
def bellman(r, discount, a, Q, Q_V, trace, double, low, high, value, y, residual):
    """Write the targets of consecutive transitions to y, from the last to the first, and y - Q_V(s, a) to residual:

    y_t = clip(r_t + discount_t v_t+1),   v_t = (1 - trace) max_a Q(s_t, a) + trace y_t

    With `double`, the maximum is limited to the value that Q_V gives to the same action. `value` is v of the state
    after the last row. Rows with a < 0 have no action. Returns v of the first state and the sum of (y - Q)^2.
    """
    squares = 0.0
    for t in range(len(r) - 1, -1, -1):
        k, choice = a[t], argmax(Q[t])
        best = Q[t, choice]
        if double:
            best = min(best, Q_V[t, choice])
        y[t] = min(max(r[t] + discount[t] * value, low), high)
        residual[t] = 0
        value = best
        if k >= 0:
            value += trace * (y[t] - best)
            residual[t] = y[t] - Q_V[t, k]
            squares += (y[t] - Q[t, k]) ** 2
    return value, squares


@jit
def add_products(X, a, residual, b):
    """Add the sum of residual_t X_t over the rows t of action k to b_k."""
    places, many = group_places(a, b.shape[0])
    add_by_action(X, np.arange(X.shape[0]), places, many, residual, b)


@jit
def sweep(X, W, r, discount, a, Q_V, trace, double, low, high, rows, y, b):
    """Write the targets of all rows to y and add the sum of (y - Q_V) X over the rows of action k to b_k.

    The sweep goes from the last row to the first, because a target depends on the one after it. It takes `rows` at a
    time, so that the values, targets and products of a block are computed while it is in the cache. Returns the sum of
    (y - Q)^2.
    """
    Q, residual, part = np.empty((rows, W.shape[0]), W.dtype), np.empty(rows, W.dtype), np.empty_like(W)
    value = squares = 0.0
    for hi in range(len(r), 0, -rows):
        lo = max(hi - rows, 0)
        n = hi - lo
        values(X[lo:hi], W, Q[:n])
        value, more = bellman(
            r[lo:hi], discount[lo:hi], a[lo:hi], Q[:n], Q_V[lo:hi], trace, double, low, high, value, y[lo:hi],
            residual[:n],
        )  # fmt: skip
        squares += more
        part[:] = 0
        add_products(X[lo:hi], a[lo:hi], residual[:n], part)
        b += part
    return squares
