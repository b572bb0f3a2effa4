"""Temporal-difference learning of a linear readout in plain numpy, with one function for each equation.

This is the reference for `fedqhd.kernels`, which tests compare with it. X has rows Phi(s)^H, so Q = Re(X W), and a step
adds eta X^H delta. Without the conjugate, complex features would diverge.
"""

from __future__ import annotations

import numpy as np

from fedqhd.core.protocols import Array


def q_values(X: Array, W: Array) -> Array:
    """Return Q = Re(X W), (B, A)."""
    return (X @ W).real


def double_q_target(r: Array, discount: Array, q_next: Array, q_next_target: Array) -> Array:
    """Return y = r + discount * Q_target(s', argmax_a Q(s', a)), (B,); discount is 0 where the episode terminated."""
    return r + discount * q_next_target[np.arange(len(q_next)), q_next.argmax(axis=1)]


def td_error(y: Array, q: Array, a: Array) -> Array:
    """Return delta = y - Q(s, a), (B,)."""
    return y - q[np.arange(len(q)), a]


def semi_gradient(W: Array, X: Array, a: Array, delta: Array, eta: float) -> Array:
    """Return W with eta delta Phi(s), summed over the minibatch, added to W[:, a]."""
    onehot = np.equal.outer(a, np.arange(W.shape[1]))
    return W + eta * X.conj().T @ (delta[:, None] * onehot)
