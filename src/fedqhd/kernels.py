"""The fused loops: encode -> Q for acting, encode -> TD -> update for learning.

The only file with numba. Every function here has a plain numpy twin that tests compare it
with (`Encoder.__call__` and the reference functions of `agents/td.py`); the kernels work in
float32 and agree with it to about 1e-5.

An encoder arrives as `(kind, Omega, b, items)`, arrays that its kind does not use being empty:

  FOURIER   Phi_d = D^-1/2 cos(2 pi (z . Omega_d + b_d)), Omega and b in turns, not radians
  COMPLEX   Phi_d = D^-1/2 exp(2 pi i z . Omega_d), stored as interleaved (cos, sin)
  SYMBOLIC  bundle of the n bound items[j, level_j] and of their joint binding (their product)
  GIVEN     made elsewhere: whoever calls has put Phi where it is to be, and nothing is made here

Features are made in blocks of `BLOCK` components, so that what a block touches stays in the
first-level cache and no (B, D) array of them travels through numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FOURIER, COMPLEX, SYMBOLIC, GIVEN = 0, 1, 2, 3
BLOCK = 1024

f32 = np.float32
# Sums may be reordered and fused, or they do not vectorise; NaN and infinity keep their meaning,
# because a diverging run is recognised by them.
_FAST: Any = {"reassoc", "contract", "nsz", "arcp"}
_jit = njit(cache=True, fastmath=_FAST, nogil=True)

# sin(2 pi x) on |x| <= 1/4, odd minimax polynomial (Lawson's iteration), error 3.4e-9.
_S1, _S3, _S5, _S7, _S9 = f32(6.28318516), f32(-41.341655), f32(81.601004), f32(-76.549782), f32(39.536706)
_ZERO, _QUARTER, _HALF, _ONE = f32(0.0), f32(0.25), f32(0.5), f32(1.0)


@njit(cache=True, fastmath=_FAST, inline="always")
def _cos_turns(t):  # type: ignore[no-untyped-def]
    """cos(2 pi t). floor, not rint: only floor vectorises here."""
    t = t - np.floor(t + _HALF)
    x = _QUARTER - abs(t)
    u = x * x
    return x * (_S1 + u * (_S3 + u * (_S5 + u * (_S7 + u * _S9))))


@_jit
def _turns(z, Omega, lo, hi, out):  # type: ignore[no-untyped-def]
    """out += z . Omega[:, lo:hi].

    Along one-dimensional slices, which is what vectorises, and four variables at a time, which
    spares three of four trips of `out` to memory.
    """
    n, width, j = z.shape[0], hi - lo, 0
    while j + 4 <= n:
        z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
        w0, w1, w2, w3 = Omega[j, lo:hi], Omega[j + 1, lo:hi], Omega[j + 2, lo:hi], Omega[j + 3, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d] + z1 * w1[d] + z2 * w2[d] + z3 * w3[d]
        j += 4
    while j + 2 <= n:
        z0, z1 = z[j], z[j + 1]
        w0, w1 = Omega[j, lo:hi], Omega[j + 1, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d] + z1 * w1[d]
        j += 2
    if j < n:
        z0, w0 = z[j], Omega[j, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d]


@_jit
def _symbolic(z, b, items, lo, hi, out):  # type: ignore[no-untyped-def]
    """Bundle of the bound levels and their product. b = (first level's position, levels per unit)."""
    n, last, width = z.shape[0], items.shape[1] - 1, hi - lo
    product = np.ones(width, np.float32)
    for j in range(n):
        level = min(max(int(np.floor((z[j] - b[0]) * b[1] + _HALF)), 0), last)
        item = items[j, level, lo:hi]
        for d in range(width):
            v = f32(item[d])
            out[d] += v
            product[d] *= v
    terms = n + 1 if n > 1 else 1
    scale = _ONE / (f32(terms) * np.sqrt(f32(items.shape[2])))
    both = _ONE if n > 1 else _ZERO
    for d in range(width):
        out[d] = scale * (out[d] + both * product[d])


@_jit
def _encode(kind, z, Omega, b, items, lo, hi, out):  # type: ignore[no-untyped-def]
    """Components lo..hi of Phi(z) into out[0:]; complex ones as interleaved pairs."""
    width = hi - lo
    if kind == GIVEN:
        return
    if kind == SYMBOLIC:
        out[:width] = _ZERO
        _symbolic(z, b, items, lo, hi, out)
        return
    scale = _ONE / np.sqrt(f32(Omega.shape[1]))
    if kind == FOURIER:
        out[:width] = b[lo:hi]
        _turns(z, Omega, lo, hi, out)
        for d in range(width):
            out[d] = scale * _cos_turns(out[d])
    else:
        turns = np.zeros(width, np.float32)
        _turns(z, Omega, lo, hi, turns)
        for d in range(width):
            t = turns[d]
            out[2 * d] = scale * _cos_turns(t)
            out[2 * d + 1] = scale * _cos_turns(t - _QUARTER)


@njit(cache=True, fastmath=_FAST, inline="always")
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = f32(0.0)
    for d in range(x.shape[0]):
        total += x[d] * y[d]
    return total


@_jit
def _two_dots(x, y, z):  # type: ignore[no-untyped-def]
    xy = xz = f32(0.0)
    for d in range(x.shape[0]):
        xy += x[d] * y[d]
        xz += x[d] * z[d]
    return xy, xz


@njit(cache=True, inline="always")
def _dimension(kind, Omega, items):  # type: ignore[no-untyped-def]
    return items.shape[2] if kind == SYMBOLIC else Omega.shape[1]


@_jit
def q_batch(kind, Omega, b, items, Z, W, phi, Q):  # type: ignore[no-untyped-def]
    """Q (B, A) of the states Z (B, n); phi (R,) is scratch."""
    D = _dimension(kind, Omega, items)
    for i in range(Z.shape[0]):
        _encode(kind, Z[i], Omega, b, items, 0, D, phi)
        for a in range(W.shape[0]):
            Q[i, a] = _dot(phi, W[a])


@_jit
def encode_batch(kind, Omega, b, items, Z, X):  # type: ignore[no-untyped-def]
    """X (B, R) of the states Z (B, n)."""
    D = _dimension(kind, Omega, items)
    for i in range(Z.shape[0]):
        _encode(kind, Z[i], Omega, b, items, 0, D, X[i])


@_jit
def greedy(q, u):  # type: ignore[no-untyped-def]
    """argmax of q, one of the maxima at random: u in [0, 1) decides. -1 if q has a NaN."""
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


@_jit
def refresh(kind, Omega, b, items, z, seen, phi):  # type: ignore[no-untyped-def]
    """Make phi = Phi(z) and seen = z, unless they are: the next state of one step is the state of the next."""
    same = True
    for j in range(z.shape[0]):
        same = same and z[j] == seen[j]
    if not same:
        _encode(kind, z, Omega, b, items, 0, _dimension(kind, Omega, items), phi)
        seen[:] = z


@_jit
def act(kind, Omega, b, items, z, seen, phi, W, q, epsilon, u_explore, u_action):  # type: ignore[no-untyped-def]
    """Epsilon-greedy action; leaves Q(z, .) in q. -1: Q is not finite."""
    refresh(kind, Omega, b, items, z, seen, phi)
    for a in range(W.shape[0]):
        q[a] = _dot(phi, W[a])
    best = greedy(q, u_action)
    if best >= 0 and u_explore < epsilon:
        return int(u_action * W.shape[0])
    return best


@_jit
def online_step(kind, Omega, b, items, z, a, r, discount, z_next, eta, seen, phi, phi_next, W):  # type: ignore[no-untyped-def]
    """One TD step on the transition just met; leaves Phi(z_next) in phi_next. Returns the TD error."""
    refresh(kind, Omega, b, items, z, seen, phi)
    _encode(kind, z_next, Omega, b, items, 0, _dimension(kind, Omega, items), phi_next)
    best = _dot(phi_next, W[0])
    for k in range(1, W.shape[0]):
        best = max(best, _dot(phi_next, W[k]))
    delta = f32(r) + f32(discount) * best - _dot(phi, W[a])
    step = f32(eta) * delta
    w = W[a]
    for d in range(phi.shape[0]):
        w[d] += step * phi[d]
    return delta


@_jit
def _bootstrap(x, W, W_target, first, last, q_next, q_target):  # type: ignore[no-untyped-def]
    """Add what components first..last of Phi(s') are worth to W and to W_target, action by action."""
    for k in range(W.shape[0]):
        online, delayed = _two_dots(x, W[k, first:last], W_target[k, first:last])
        q_next[k] += online
        q_target[k] += delayed


@_jit
def _steps(rows, R, discount, q, q_next, q_target, eta, step):  # type: ignore[no-untyped-def]
    """step_i = eta delta_i, double-Q: W chooses the action, W_target values it. Returns sum |delta|."""
    total = f32(0.0)
    for i in range(rows.shape[0]):
        best = 0
        for k in range(1, q_next.shape[1]):
            if q_next[i, k] > q_next[i, best]:
                best = k
        delta = R[rows[i]] + discount[rows[i]] * q_target[i, best] - q[i]
        total += abs(delta)
        step[i] = f32(eta) * delta
    return total


@_jit
def replay_step(kind, Omega, b, items, S, A, R, discount, S_next, rows, eta, W, W_target, X):  # type: ignore[no-untyped-def]
    """Summed double-Q semi-gradient step on the minibatch `rows` of the replay. Returns sum |delta|.

    X (B, R) is scratch: the features of s are needed twice, those of s' once, block by block.
    """
    B, actions = rows.shape[0], W.shape[0]
    per = 2 if kind == COMPLEX else 1
    D = _dimension(kind, Omega, items)
    block = np.empty(per * BLOCK, np.float32)
    q, step = np.zeros(B, np.float32), np.empty(B, np.float32)
    q_next, q_target = np.zeros((B, actions), np.float32), np.zeros((B, actions), np.float32)
    for lo in range(0, D, BLOCK):
        hi = min(lo + BLOCK, D)
        first, last = per * lo, per * hi
        for i in range(B):
            row = rows[i]
            x = block[: last - first]
            _encode(kind, S_next[row], Omega, b, items, lo, hi, x)
            _bootstrap(x, W, W_target, first, last, q_next[i], q_target[i])
            x = X[i, first:last]
            _encode(kind, S[row], Omega, b, items, lo, hi, x)
            q[i] += _dot(x, W[A[row], first:last])
    total = _steps(rows, R, discount, q, q_next, q_target, eta, step)
    for lo in range(0, per * D, BLOCK):
        hi = min(lo + BLOCK, per * D)
        for i in range(B):
            w, x, c = W[A[rows[i]], lo:hi], X[i, lo:hi], step[i]
            for d in range(hi - lo):
                w[d] += c * x[d]
    return total


@_jit
def stored_step(kind, Omega, b, items, X, scale, joined, A, R, discount, S_next, rows, eta, W, W_target, phi):  # type: ignore[no-untyped-def]
    """The same step where the replay keeps Phi(s) as scale * X, in float32 or int8.

    The features of s' are those of the row after it, if that goes on from it; at the end of an episode they are made
    anew, in phi (R,), unless it has no future to value.
    """
    B, actions, width = rows.shape[0], W.shape[0], W.shape[1]
    D = _dimension(kind, Omega, items)
    block = np.empty(BLOCK, np.float32)
    q, step = np.zeros(B, np.float32), np.empty(B, np.float32)
    q_next, q_target = np.zeros((B, actions), np.float32), np.zeros((B, actions), np.float32)
    for lo in range(0, width, BLOCK):
        hi = min(lo + BLOCK, width)
        x = block[: hi - lo]
        for i in range(B):
            row = rows[i]
            if joined[row]:
                stored = X[(row + 1) % X.shape[0], lo:hi]
                for d in range(hi - lo):
                    x[d] = f32(stored[d])
                _bootstrap(x, W, W_target, lo, hi, q_next[i], q_target[i])
            w, stored = W[A[row], lo:hi], X[row, lo:hi]
            part = f32(0.0)
            for d in range(hi - lo):
                part += f32(stored[d]) * w[d]
            q[i] += part
    for i in range(B):
        q[i] *= scale
        if joined[rows[i]]:
            for k in range(actions):
                q_next[i, k] *= scale
                q_target[i, k] *= scale
        elif discount[rows[i]] > _ZERO:
            _encode(kind, S_next[rows[i]], Omega, b, items, 0, D, phi)
            _bootstrap(phi, W, W_target, 0, width, q_next[i], q_target[i])
    total = _steps(rows, R, discount, q, q_next, q_target, eta, step)
    for lo in range(0, width, BLOCK):
        hi = min(lo + BLOCK, width)
        for i in range(B):
            w, stored, c = W[A[rows[i]], lo:hi], X[rows[i], lo:hi], step[i] * scale
            for d in range(hi - lo):
                w[d] += c * f32(stored[d])
    return total


@_jit
def quantise(phi, scale, row):  # type: ignore[no-untyped-def]
    """row = phi / scale, rounded: |phi| is at most 127 scale."""
    up = _ONE / scale
    for d in range(phi.shape[0]):
        row[d] = np.int8(np.floor(phi[d] * up + _HALF))


@_jit
def bellman(r, discount, a, Q, Q_V, trace, double, low, high, value, y, residual):  # type: ignore[no-untyped-def]
    """Targets of consecutive transitions, the last first, into y, and y - Q_V in each row's action into residual:

    y_t = clip(r_t + discount_t v_t+1),   v_t = (1 - trace) max_a Q(s_t, a) + trace y_t

    With `double` the maximum counts for no more than what Q_V makes of the action that attains it. `value` is v of the
    state after the last row. Returns v of the first, and the sum of (y - Q)^2.
    """
    squares = 0.0
    for t in range(len(r) - 1, -1, -1):
        k = a[t]
        best = Q[t].max()
        if double:
            best = min(best, Q_V[t, Q[t].argmax()])
        y[t] = min(max(r[t] + discount[t] * value, low), high)
        residual[t] = 0
        value = best
        if k >= 0:
            value += trace * (y[t] - best)
            residual[t, k] = y[t] - Q_V[t, k]
            squares += (y[t] - Q[t, k]) ** 2
    return value, squares
