"""One step of TD learning, from features to weights: online, on a minibatch, and on a minibatch of stored features.

The plain numpy twins are the reference functions of `agents/td.py`.
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.actions import argmax
from fedqhd.kernels.cache import jit
from fedqhd.kernels.encode import BLOCK, dimension, encode_block, refresh
from fedqhd.kernels.integers import add_row_products, rounded_weights, row_products
from fedqhd.kernels.kinds import COMPLEX
from fedqhd.kernels.memory import drawn, fetch
from fedqhd.kernels.products import STORED_BLOCK, add_by_action, add_one, add_values, dot, group_places

f32 = np.float32


@jit
def online_step(kind, Omega, b, items, z, a, r, discount, z_next, eta, seen, phi, phi_next, W):
    """One TD step on one transition. It leaves Phi(z_next) in phi_next and returns the TD error."""
    refresh(kind, Omega, b, items, z, seen, phi)
    encode_block(kind, z_next, Omega, b, items, 0, dimension(kind, Omega, items), phi_next)
    best = dot(phi_next, W[0])
    for k in range(1, W.shape[0]):
        best = max(best, dot(phi_next, W[k]))
    delta = f32(r) + f32(discount) * best - dot(phi, W[a])
    add_one(W[a], phi, f32(eta) * delta)
    return delta


@jit
def replay_step(kind, Omega, b, items, S, A, R, discount, S_next, u, size, eta, W, W_target, X):
    """Summed double-Q semi-gradient step on the minibatch that u (B,) draws from the memory. Returns sum |delta|.

    X (B, R) is scratch for the features of s, which are needed twice; those of s' are needed once, block by block.
    """
    rows = drawn(u, size)
    B, actions = rows.shape[0], W.shape[0]
    per = 2 if kind == COMPLEX else 1
    D = dimension(kind, Omega, items)
    block = np.empty(per * BLOCK, np.float32)
    q, step = np.zeros(B, np.float32), np.empty(B, np.float32)
    q_next, q_target = np.zeros((B, actions), np.float32), np.zeros((B, actions), np.float32)
    for lo in range(0, D, BLOCK):
        hi = min(lo + BLOCK, D)
        first, last = per * lo, per * hi
        for i in range(B):
            row = rows[i]
            x = block[: last - first]
            encode_block(kind, S_next[row], Omega, b, items, lo, hi, x)
            add_values(x, W, first, last, q_next[i])
            add_values(x, W_target, first, last, q_target[i])
            x = X[i, first:last]
            encode_block(kind, S[row], Omega, b, items, lo, hi, x)
            q[i] += dot(x, W[A[row], first:last])
    total = f32(0.0)
    for i in range(B):
        row = rows[i]
        # Double Q: W chooses the action, W_target values it.
        delta = R[row] + discount[row] * q_target[i, argmax(q_next[i])] - q[i]
        total += abs(delta)
        step[i] = f32(eta) * delta
    for lo in range(0, per * D, BLOCK):
        hi = min(lo + BLOCK, per * D)
        for i in range(B):
            add_one(W[A[rows[i]], lo:hi], X[i, lo:hi], step[i])
    return total


@jit
def stored_step(
    kind, Omega, b, items, X, scale, joined, A, R, discount, S_next, u, size, eta, W, W_target, N_target, unit_target,
    phi,
):  # fmt: skip
    """The same step where the memory keeps Phi(s) as scale * X, in float32 or int8.

    The features of s' are those of the next row where the two are joined. Where they are not, at the end of an episode,
    they are computed into phi (R,), unless the discount is zero. W_target values only the action that W chose; it
    arrives `counted` as well, as (N_target, unit_target).
    """
    rows = drawn(u, size)
    B, (actions, width) = rows.shape[0], W.shape
    # Rows are taken four at a time; the place behind the last is for those that make the last four complete.
    q, future, step = np.zeros(B + 1, np.float32), np.zeros(B + 1, np.float32), np.empty(B, np.float32)
    q_next, best = np.zeros((B + 1, actions), np.float32), np.full(B, -1)
    a, goes_on, own = A[rows], joined[rows], np.append(rows, rows[:1])
    after = own + 1
    for i in range(B + 1):
        if after[i] == X.shape[0]:
            after[i] = 0
        fetch(X, own[i], after[i])
    inner, inside = group_places(goes_on.astype(np.intp) - 1, 1)
    mine, many = group_places(a, actions)
    N, unit = rounded_weights(X, W)
    for lo in range(0, width, STORED_BLOCK):
        hi = min(lo + STORED_BLOCK, width)
        for n in range(0, inside[0], 4):
            at = inner[0, n], inner[0, n + 1], inner[0, n + 2], inner[0, n + 3]
            four = after[at[0]], after[at[1]], after[at[2]], after[at[3]]
            for k in range(0, actions - 1, 2):
                sums = row_products(X, four, N, (k, k + 1), lo, hi)
                for j in range(4):
                    q_next[at[j], k] += unit[k] * f32(sums[2 * j])
                    q_next[at[j], k + 1] += unit[k + 1] * f32(sums[2 * j + 1])
        if actions % 2:
            add_row_products(X, after, inner[0], inside[0], N, actions - 1, unit, lo, hi, q_next[:, -1])
        for k in range(actions):
            add_row_products(X, own, mine[k], many[k], N, k, unit, lo, hi, q)
    for i in range(B):
        if goes_on[i]:
            best[i] = argmax(q_next[i])
    chosen, often = group_places(best, actions)
    for k in range(actions):
        for lo in range(0, width, STORED_BLOCK):
            hi = min(lo + STORED_BLOCK, width)
            add_row_products(X, after, chosen[k], often[k], N_target, k, unit_target, lo, hi, future)
    total = f32(0.0)
    for i in range(B):
        row = rows[i]
        value = scale * future[i]
        if not goes_on[i] and discount[row] > f32(0.0):
            encode_block(kind, S_next[row], Omega, b, items, 0, dimension(kind, Omega, items), phi)
            add_values(phi, W, 0, width, q_next[i])
            value = dot(phi, W_target[argmax(q_next[i])])
        delta = R[row] + discount[row] * value - scale * q[i]
        total += abs(delta)
        step[i] = f32(eta) * delta * scale
    add_by_action(X, rows, mine, many, step, W)
    return total
