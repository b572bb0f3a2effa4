"""Values of states, and the choice of actions by them."""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit
from fedqhd.kernels.calls import keep_apart
from fedqhd.kernels.encode import dimension, encode_block, refresh
from fedqhd.kernels.products import dot, value


@jit
def q_batch(kind, Omega, b, items, Z, W, phi, Q):
    """Write the values of the states Z (B, n) to Q (B, A); phi (R,) is scratch space."""
    keep_apart()
    D = dimension(kind, Omega, items)
    for i in range(Z.shape[0]):
        encode_block(kind, Z[i], Omega, b, items, 0, D, phi)
        for a in range(W.shape[0]):
            Q[i, a] = dot(phi, W[a])


@jit
def argmax(q):
    """Return the index of the largest element, the first one if there are several."""
    best = 0
    for k in range(1, q.shape[0]):
        if q[k] > q[best]:
            best = k
    return best


@jit
def greedy(q, u):
    """Return the action with the largest q, or -1 if q is not finite; u in [0, 1) breaks ties."""
    best, ties = q[0], 0
    for a in range(q.shape[0]):
        if not np.isfinite(q[a]):
            return -1
        if q[a] > best:
            best = q[a]
    for a in range(q.shape[0]):
        ties += q[a] == best
    pick = int(u * ties)
    for a in range(q.shape[0]):
        if q[a] == best:
            if pick == 0:
                return a
            pick -= 1
    return -1


@jit
def epsilon_greedy(q, epsilon, u_explore, u_action):
    """Return an epsilon-greedy action, or -1 if q is not finite; u_explore and u_action are uniform in [0, 1)."""
    best = greedy(q, u_action)
    if best >= 0 and u_explore < epsilon:
        return int(u_action * q.shape[0])
    return best


@jit
def act(kind, Omega, b, items, z, cached, phi, W, q, epsilon, u_explore, u_action):
    """Return an epsilon-greedy action in the state z, or -1 if Q is not finite, and write Q(z, .) to q.

    u_explore and u_action are uniform in [0, 1); cached and phi are those of `refresh`.
    """
    keep_apart()
    refresh(kind, Omega, b, items, z, cached, phi)
    for a in range(W.shape[0]):
        q[a] = value(phi, W[a])
    return epsilon_greedy(q, epsilon, u_explore, u_action)
