"""One step of TD learning, from features to weights: online, on a minibatch, and on a minibatch of stored features.

`agents/td.py` has the same equations in plain numpy.
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.actions import argmax
from fedqhd.kernels.cache import jit
from fedqhd.kernels.calls import keep_apart
from fedqhd.kernels.encode import BLOCK, dimension, encode_block, refresh
from fedqhd.kernels.integers import add_row_products, rounded_weights, row_products
from fedqhd.kernels.kinds import COMPLEX
from fedqhd.kernels.memory import draw_rows, fetch
from fedqhd.kernels.products import STORED_BLOCK, add_by_action, add_one, add_values, dot, group_places, value

f32 = np.float32


@jit
def online_step(kind, Omega, b, items, z, a, r, discount, z_next, eta, cached, phi, phi_next, W, q_next):
    """Take one TD step on one transition and return the TD error.

    cached and phi are those of `refresh`; phi_next and q_next are those of `online_update`.
    """
    keep_apart()
    refresh(kind, Omega, b, items, z, cached, phi)
    return online_update(kind, Omega, b, items, value(phi, W[a]), a, r, discount, z_next, eta, phi, phi_next, W, q_next)


@jit
def online_update(kind, Omega, b, items, q, a, r, discount, z_next, eta, phi, phi_next, W, q_next):
    """Do what `online_step` does where phi = Phi(z) and q = Q(z, a) are known.

    Phi(z_next) is written to phi_next, and Q(z_next, .) before the step to q_next.
    """
    keep_apart()
    encode_block(kind, z_next, Omega, b, items, 0, dimension(kind, Omega, items), phi_next)
    best = q_next[0] = value(phi_next, W[0])
    for k in range(1, W.shape[0]):
        q_next[k] = value(phi_next, W[k])
        best = max(best, q_next[k])
    delta = f32(r) + f32(discount) * best - q
    add_one(W[a], phi, f32(eta) * delta)
    return delta


@jit
def replay_step(kind, Omega, b, items, S, A, R, discount, S_next, u, size, eta, W, W_target, X):
    """Take a summed double-Q semi-gradient step on the minibatch that u (B,) draws, and return sum |delta|.

    X (B, R) is scratch space for the features of s, which are used twice; those of s' are used once, block by block.
    """
    keep_apart()
    rows = draw_rows(u, size)
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
    """Take the step of `replay_step` where the memory stores Phi(s) as scale * X, in float32 or int8.

    Where a row is joined to the next, the features of s' are those of the next row. At the end of an episode they are
    computed into phi (R,), unless the discount is zero. W_target values only the action that W chose; it is also passed
    as (N_target, unit_target), the result of `round_weights`.
    """
    keep_apart()
    rows = draw_rows(u, size)
    B, (actions, width) = rows.shape[0], W.shape
    # Rows are taken four at a time; the extra place at the end is for those that complete the last four.
    q, future, step = np.zeros(B + 1, np.float32), np.zeros(B + 1, np.float32), np.empty(B, np.float32)
    q_next, best = np.zeros((B + 1, actions), np.float32), np.full(B, -1)
    a, goes_on, before = A[rows], joined[rows], np.append(rows, rows[:1])
    after = before + 1
    for i in range(B + 1):
        if after[i] == X.shape[0]:
            after[i] = 0
        fetch(X, before[i], after[i])
    inner, inside = group_places(goes_on.astype(np.intp) - 1, 1)
    by_action, many = group_places(a, actions)
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
            add_row_products(X, before, by_action[k], many[k], N, k, unit, lo, hi, q)
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
    add_by_action(X, rows, by_action, many, step, W)
    return total
