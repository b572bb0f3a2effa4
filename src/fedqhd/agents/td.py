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


def trace_step(
    W: Array, E: Array, phi: Array, a: int, step: float, decay: float, replacing: bool
) -> tuple[Array, Array]:
    """Return W and the traces E (D, A) after a step of TD(lambda) on the features phi (D,) of a state and an action a.

    E[:, a] <- E[:, a] + phi, or the larger of the two with replacing traces;  W <- W + step E;  E <- decay E

    Args:
        W: The weights, (D, A).
        E: The traces.
        phi: The features of the state.
        a: The action.
        step: eta delta.
        decay: The discount times lambda.
        replacing: Whether traces are replaced instead of accumulated.
    """
    E = E.copy()
    larger = np.where(np.abs(phi) >= np.abs(E[:, a]), phi, E[:, a])
    E[:, a] = larger if replacing else E[:, a] + phi
    return W + step * E, decay * E
