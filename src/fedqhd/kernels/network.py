"""The network of the DQN baselines: its values, its gradient, and a whole step on a minibatch.

All parameters are one vector: for each layer, the weights (out, in) and then the biases (out,). `sizes` has the number
of inputs, the widths of the hidden layers and the number of actions. All layers but the last are followed by a ReLU.
A minibatch has one column for each state, so that sums over inputs are sums of rows.
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.actions import argmax
from fedqhd.kernels.cache import exact, jit
from fedqhd.kernels.calls import keep_apart
from fedqhd.kernels.matrices import LANES, multiply
from fedqhd.kernels.memory import draw_rows
from fedqhd.kernels.optimiser import adam
from fedqhd.kernels.products import add_values

f32 = np.float32


def network_scratch(sizes, B):
    """Return the scratch space (through, slopes, across) for minibatches of B states.

    The first two have a row for each unit, in the order of `sizes`, and a column for each state. Columns after the
    first B only complete a vector; they do not count.
    """
    B_whole, width = (-(-k // LANES) * LANES for k in (B, max(sizes)))
    through, slopes = np.zeros((2, sum(sizes), B_whole), f32)
    return through, slopes, np.zeros((B, width), f32)


@jit
def network_values(sizes, theta, s, through):
    """Write the state s (n,), the outputs of the hidden layers and the values of s to `through` (sum of sizes,)."""
    keep_apart()
    through[: sizes[0]] = s
    at = unit = 0
    for k in range(sizes.shape[0] - 1):
        m, n = sizes[k], sizes[k + 1]
        W = theta[at : at + n * m].reshape((n, m))
        at += n * m
        x, y = through[unit : unit + m], through[unit + m : unit + m + n]
        y[:] = theta[at : at + n]
        at += n
        unit += m
        add_values(x, W, 0, m, y)
        if k < sizes.shape[0] - 2:
            _relu(y)


@jit
def _relu(y):
    """Replace negative elements by zero; NaN stays."""
    for i in range(y.shape[0]):
        y[i] = f32(0.0) if y[i] < f32(0.0) else y[i]


@jit
def network_forward(sizes, theta, through):
    """Write the outputs of all layers to `through`, of which the first rows are the states."""
    at = unit = 0
    for k in range(sizes.shape[0] - 1):
        m, n = sizes[k], sizes[k + 1]
        W = theta[at : at + n * m].reshape((n, m))
        at += n * m
        Y = through[unit + m : unit + m + n]
        multiply(W, through[unit : unit + m], Y)
        for j in range(n):
            bias, y = theta[at + j], Y[j]
            for i in range(y.shape[0]):
                y[i] += bias
            if k < sizes.shape[0] - 2:
                _relu(y)
        at += n
        unit += m


@jit
def _backward(sizes, theta, through, slopes, across, gradient):
    """Write the gradient with respect to all parameters to `gradient`.

    `through` is that of `network_forward`, and the last rows of `slopes` are the gradient with respect to the values;
    the rows before them are overwritten. `across` (B, width) is scratch space for the inputs of a layer.
    """
    B, at, unit = across.shape[0], theta.shape[0], through.shape[0]
    for k in range(sizes.shape[0] - 2, -1, -1):
        m, n = sizes[k], sizes[k + 1]
        unit -= n
        G, X = slopes[unit : unit + n], through[unit - m : unit]
        at -= n
        for j in range(n):
            total = f32(0.0)
            for i in range(B):
                total += G[j, i]
            gradient[at + j] = total
        at -= n * m
        for d in range(m):
            for i in range(B):
                across[i, d] = X[d, i]
        multiply(G, across, gradient[at : at + n * m].reshape((n, m)))
        if k > 0:
            before = slopes[unit - m : unit]
            multiply(theta[at : at + n * m].reshape((n, m)).T, G, before)
            for d in range(m):
                for i in range(before.shape[1]):
                    before[d, i] = f32(0.0) if X[d, i] == f32(0.0) else before[d, i]


@exact
def approach(target, theta, tau):
    """Move the target a fraction tau of the way to theta."""
    keep, move = f32(1 - tau), f32(tau)
    for d in range(theta.shape[0]):
        target[d] = keep * target[d] + move * theta[d]


@jit
def network_descend(sizes, theta, gradient, mean, square, through, slopes, across, lr, t):
    """Take step t = 1, 2, ... of Adam and return the sum of the gradient with respect to the values.

    The arguments are those of `_backward` and `adam`. If the sum is not finite, no parameter changes.
    """
    total = f32(0.0)
    for unit in range(slopes.shape[0] - sizes[-1], slopes.shape[0]):
        for i in range(across.shape[0]):
            total += slopes[unit, i]
    if np.isfinite(total):
        _backward(sizes, theta, through, slopes, across, gradient)
        adam(theta, gradient, mean, square, lr, t)
    return total


@jit
def network_step(
    sizes, theta, target, gradient, mean, square, through, slopes, across, S, A, R, discount, S_next, u, size, huber,
    lr, t,
):  # fmt: skip
    """Take step t = 1, 2, ... of Adam on the double-Q Huber loss of the minibatch that u (B,) draws.

    Returns:
        The sum of the gradient with respect to the values. If it is not finite, no parameter has changed.
    """
    keep_apart()
    rows = draw_rows(u, size)
    B, n, actions = rows.shape[0], sizes[0], sizes[-1]
    Q, G = through[-actions:], slopes[-actions:]
    best, y = np.empty(B, np.intp), np.empty(B, np.float32)
    for i in range(B):
        through[:n, i] = S_next[rows[i]]
    network_forward(sizes, theta, through)
    for i in range(B):
        best[i] = argmax(Q[:, i])
    network_forward(sizes, target, through)
    for i in range(B):
        row = rows[i]
        # Double Q: theta chooses the action, the target values it.
        y[i] = R[row] + discount[row] * Q[best[i], i]
        through[:n, i] = S[row]
    network_forward(sizes, theta, through)
    G[:] = f32(0.0)
    for i in range(B):
        a = A[rows[i]]
        delta = Q[a, i] - y[i]
        # These comparisons leave NaN as it is.
        if delta > f32(huber):
            delta = f32(huber)
        elif delta < -f32(huber):
            delta = -f32(huber)
        G[a, i] = delta / f32(B)
    return network_descend(sizes, theta, gradient, mean, square, through, slopes, across, lr, t)
