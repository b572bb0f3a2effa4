"""Values of states, and the actions that follow from them."""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit
from fedqhd.kernels.encode import dimension, encode_block, refresh
from fedqhd.kernels.products import dot


@jit
def q_batch(kind, Omega, b, items, Z, W, phi, Q):
    """Q (B, A) = values of the states Z (B, n); phi (R,) is scratch."""
    D = dimension(kind, Omega, items)
    for i in range(Z.shape[0]):
        encode_block(kind, Z[i], Omega, b, items, 0, D, phi)
        for a in range(W.shape[0]):
            Q[i, a] = dot(phi, W[a])


@jit
def argmax(q):
    """The first of the largest elements."""
    best = 0
    for k in range(1, q.shape[0]):
        if q[k] > q[best]:
            best = k
    return best


@jit
def greedy(q, u):
    """The action of the largest q; u in [0, 1) chooses among equals. Returns -1 if q is not finite."""
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
def act(kind, Omega, b, items, z, seen, phi, W, q, epsilon, u_explore, u_action):
    """Epsilon-greedy action, or -1 if Q is not finite. It leaves Q(z, .) in q."""
    refresh(kind, Omega, b, items, z, seen, phi)
    for a in range(W.shape[0]):
        q[a] = dot(phi, W[a])
    best = greedy(q, u_action)
    if best >= 0 and u_explore < epsilon:
        return int(u_action * W.shape[0])
    return best
