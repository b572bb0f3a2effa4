"""The fused loops: encode -> Q for acting, encode -> TD -> update for learning.

The only file with numba, and one file: numba's cache notices when it changes, not when a file that it calls does.
Every function here has a plain numpy twin that tests compare it with (`Encoder.__call__` and the reference functions of
`agents/td.py`); the kernels work in float32 and agree with it to about 1e-5; where features are kept as int8, weights
are rounded too, to a 4,095th of the largest, for their values alone. `cosines`, which `Encoder.__call__` takes
itself, works in float64 and is held to numpy's to 1e-14.

An encoder arrives as `(kind, Omega, b, items)`, arrays that its kind does not use being empty:

  FOURIER   Phi_d = D^-1/2 cos(2 pi (z . Omega_d + b_d)), Omega and b in turns, not radians
  COMPLEX   Phi_d = D^-1/2 exp(2 pi i z . Omega_d), stored as interleaved (cos, sin)
  SYMBOLIC  bundle of the n bound items[j, level_j] and of their joint binding (their product)
  GIVEN     made elsewhere: whoever calls has put Phi where it is to be, and nothing is made here

Features are made in blocks of `BLOCK` components, so that what a block touches stays in the
first-level cache and no (B, D) array of them travels through numpy.
"""

from __future__ import annotations

from functools import reduce
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

FOURIER, COMPLEX, SYMBOLIC, GIVEN = 0, 1, 2, 3
BLOCK = 1024
STORED_BLOCK = 4096  # of int8, so that more of them fit
REACH = 4095  # of weights in whole numbers: a block's sum of their products with int8 then fits into 32 bits
LANES = 32  # of such products at a time
CACHE_LINE = 64

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


# The same by its Taylor series, in double precision: the first term left out is below 2e-18.
_TAYLOR = tuple((-1) ** k * (2 * np.pi) ** (2 * k + 1) / factorial(2 * k + 1) for k in range(11))


@_jit
def cosines(T, scale):  # type: ignore[no-untyped-def]
    """T = scale cos(2 pi T), in double precision and an order of magnitude faster than numpy's."""
    flat = T.reshape(-1)
    for d in range(len(flat)):
        t = flat[d] - np.floor(flat[d] + 0.5)
        x = 0.25 - abs(t)
        u, total = x * x, _TAYLOR[10]
        for k in range(9, -1, -1):
            total = _TAYLOR[k] + u * total
        flat[d] = scale * x * total


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


@njit(cache=True, inline="always")
def _variable(z, j):  # type: ignore[no-untyped-def]
    """A variable that is not there counts for nothing."""
    return z[j] if j < z.shape[0] else _ZERO


@njit(cache=True, inline="always")
def _eight(z, j):  # type: ignore[no-untyped-def]
    """Variables j to j + 7."""
    return (_variable(z, j), _variable(z, j + 1), _variable(z, j + 2), _variable(z, j + 3),
            _variable(z, j + 4), _variable(z, j + 5), _variable(z, j + 6), _variable(z, j + 7))  # fmt: skip


@njit(cache=True, inline="always")
def _frequencies(Omega, j, lo, hi):  # type: ignore[no-untyped-def]
    """Those of variables j to j + 7."""
    n = Omega.shape[0] - 1
    return (Omega[j, lo:hi], Omega[min(j + 1, n), lo:hi], Omega[min(j + 2, n), lo:hi], Omega[min(j + 3, n), lo:hi],
            Omega[min(j + 4, n), lo:hi], Omega[min(j + 5, n), lo:hi], Omega[min(j + 6, n), lo:hi],
            Omega[min(j + 7, n), lo:hi])  # fmt: skip


@_jit
def _feature(t, z, w, d, scale):  # type: ignore[no-untyped-def]
    """scale cos(2 pi (t + z . w_d)), in one go: a sum of turns that goes through memory before its cosine is taken
    costs twice as much."""
    t = t + z[0] * w[0][d] + z[1] * w[1][d] + z[2] * w[2][d] + z[3] * w[3][d]
    return scale * _cos_turns(t + z[4] * w[4][d] + z[5] * w[5][d] + z[6] * w[6][d] + z[7] * w[7][d])


@_jit
def _cosines(turns, z, Omega, j, lo, hi, scale, out):  # type: ignore[no-untyped-def]
    """out = scale cos(2 pi (turns + z . Omega[:, lo:hi])) over variables j to j + 7."""
    y, w = _eight(z, j), _frequencies(Omega, j, lo, hi)
    for d in range(hi - lo):
        out[d] = _feature(turns[d], y, w, d, scale)


@_jit
def _four_cosines(Z, i, Omega, b, scale, X):  # type: ignore[no-untyped-def]
    """X = scale cos(2 pi (b + Z . Omega)) for states i to i + 3 of at most eight variables: the frequencies are read
    once for all four."""
    w = _frequencies(Omega, 0, 0, Omega.shape[1])
    z0, z1, z2, z3 = _eight(Z[i], 0), _eight(Z[i + 1], 0), _eight(Z[i + 2], 0), _eight(Z[i + 3], 0)
    x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
    for d in range(b.shape[0]):
        x0[d], x1[d] = _feature(b[d], z0, w, d, scale), _feature(b[d], z1, w, d, scale)
        x2[d], x3[d] = _feature(b[d], z2, w, d, scale), _feature(b[d], z3, w, d, scale)


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
        last = (z.shape[0] - 1) // 8 * 8
        if last:
            turns = b[lo:hi].copy()
            _turns(z[:last], Omega, lo, hi, turns)
            _cosines(turns, z, Omega, last, lo, hi, scale, out)
        else:
            _cosines(b[lo:hi], z, Omega, last, lo, hi, scale, out)
    else:
        turns = np.zeros(width, np.float32)
        _turns(z, Omega, lo, hi, turns)
        for d in range(width):
            t = turns[d]
            out[2 * d] = scale * _cos_turns(t)
            out[2 * d + 1] = scale * _cos_turns(t - _QUARTER)


@_jit
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = y.dtype.type(0)
    for d in range(x.shape[0]):
        total += y.dtype.type(x[d]) * y[d]
    return total


@_jit
def _two_dots(x, y, z):  # type: ignore[no-untyped-def]
    xy = xz = y.dtype.type(0)
    for d in range(x.shape[0]):
        t = y.dtype.type(x[d])
        xy += t * y[d]
        xz += t * z[d]
    return xy, xz


@_jit
def _four_dots(x, w0, w1, w2, w3):  # type: ignore[no-untyped-def]
    q0 = q1 = q2 = q3 = w0.dtype.type(0)
    for d in range(x.shape[0]):
        t = w0.dtype.type(x[d])
        q0 += t * w0[d]
        q1 += t * w1[d]
        q2 += t * w2[d]
        q3 += t * w3[d]
    return q0, q1, q2, q3


@_jit
def _add_values(x, W, lo, hi, q):  # type: ignore[no-untyped-def]
    """q += W[:, lo:hi] x, several actions at a time, which spares loads and conversions of x."""
    k, actions = 0, W.shape[0]
    while k + 4 <= actions:
        q0, q1, q2, q3 = _four_dots(x, W[k, lo:hi], W[k + 1, lo:hi], W[k + 2, lo:hi], W[k + 3, lo:hi])
        q[k] += q0
        q[k + 1] += q1
        q[k + 2] += q2
        q[k + 3] += q3
        k += 4
    while k + 2 <= actions:
        q0, q1 = _two_dots(x, W[k, lo:hi], W[k + 1, lo:hi])
        q[k] += q0
        q[k + 1] += q1
        k += 2
    if k < actions:
        q[k] += _dot(x, W[k, lo:hi])


@_jit
def _add_one(w, x, c):  # type: ignore[no-untyped-def]
    for d in range(w.shape[0]):
        w[d] += c * w.dtype.type(x[d])


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
    D, (rows, n) = _dimension(kind, Omega, items), Z.shape
    fours = rows // 4 * 4 if kind == FOURIER and n <= 8 else 0
    for i in range(0, fours, 4):
        _four_cosines(Z, i, Omega, b, _ONE / np.sqrt(f32(D)), X)
    for i in range(fours, rows):
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
    _add_one(W[a], phi, f32(eta) * delta)
    return delta


@_jit
def _argmax(q):  # type: ignore[no-untyped-def]
    best = 0
    for k in range(1, q.shape[0]):
        if q[k] > q[best]:
            best = k
    return best


@_jit
def put(S, A, R, D, S_next, joined, i, any_before, s, a, r, discount, s_next):  # type: ignore[no-untyped-def]
    """Write a transition into row i of a ring, and whether the row before it is joined to it.

    A row is overwritten before the one after it, so what is joined stays so.
    """
    same = any_before
    for j in range(s.shape[0]):
        same = same and S_next[i - 1, j] == s[j]
    joined[i - 1] = same
    for j in range(s.shape[0]):
        S[i, j] = s[j]
        S_next[i, j] = s_next[j]
    A[i], R[i], D[i], joined[i] = a, r, discount, False


@_jit
def drawn(u, size):  # type: ignore[no-untyped-def]
    """Rows below `size`, one for each u in [0, 1)."""
    return (u * size).astype(np.intp)


@_jit
def replay_step(kind, Omega, b, items, S, A, R, discount, S_next, u, size, eta, W, W_target, X):  # type: ignore[no-untyped-def]
    """Summed double-Q semi-gradient step on the minibatch that u (B,) draws from the replay. Returns sum |delta|.

    X (B, R) is scratch: the features of s are needed twice, those of s' once, block by block.
    """
    rows = drawn(u, size)
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
            _add_values(x, W, first, last, q_next[i])
            _add_values(x, W_target, first, last, q_target[i])
            x = X[i, first:last]
            _encode(kind, S[row], Omega, b, items, lo, hi, x)
            q[i] += _dot(x, W[A[row], first:last])
    total = f32(0.0)
    for i in range(B):
        row = rows[i]
        # Double Q: W chooses the action, W_target values it.
        delta = R[row] + discount[row] * q_target[i, _argmax(q_next[i])] - q[i]
        total += abs(delta)
        step[i] = f32(eta) * delta
    for lo in range(0, per * D, BLOCK):
        hi = min(lo + BLOCK, per * D)
        for i in range(B):
            _add_one(W[A[rows[i]], lo:hi], X[i, lo:hi], step[i])
    return total


@_jit
def _add_four(w, x0, x1, x2, x3, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    for d in range(w.shape[0]):
        t = w.dtype.type
        w[d] += c0 * t(x0[d]) + c1 * t(x1[d]) + c2 * t(x2[d]) + c3 * t(x3[d])


@_jit
def _add_features(X, rows, chosen, step, lo, hi, w):  # type: ignore[no-untyped-def]
    """w += sum of step_i X[rows_i, lo:hi] over the chosen i, four at a time, which spares trips of w."""
    whole = chosen.shape[0] // 4 * 4
    for n in range(0, whole, 4):
        h, i, j, k = chosen[n], chosen[n + 1], chosen[n + 2], chosen[n + 3]
        x0, x1, x2, x3 = X[rows[h], lo:hi], X[rows[i], lo:hi], X[rows[j], lo:hi], X[rows[k], lo:hi]
        _add_four(w, x0, x1, x2, x3, step[h], step[i], step[j], step[k])
    for i in chosen[whole:]:
        _add_one(w, X[rows[i], lo:hi], step[i])


@_jit
def _dot_four(x0, x1, x2, x3, w):  # type: ignore[no-untyped-def]
    q0 = q1 = q2 = q3 = w.dtype.type(0)
    for d in range(w.shape[0]):
        t = w.dtype.type
        q0 += t(x0[d]) * w[d]
        q1 += t(x1[d]) * w[d]
        q2 += t(x2[d]) * w[d]
        q3 += t(x3[d]) * w[d]
    return q0, q1, q2, q3


@_jit
def _eight_dots(x0, x1, x2, x3, v, w):  # type: ignore[no-untyped-def]
    """v and w with four rows: what is loaded and converted serves twice and more."""
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


def _sums(builder, xs, ws, lanes, start, pieces):  # type: ignore[no-untyped-def]
    """LLVM for the sums of x w over `pieces` of `lanes` elements from `start` on, for each x and w; their elements are
    yet to be added up.

    Products of neighbours are added before anything else: on most machines that is one instruction for all lanes,
    which LLVM does not find in a plain loop.
    """
    word = ir.IntType(32)
    halves = [ir.Constant(ir.VectorType(word, lanes // 2), list(range(k, lanes, 2))) for k in (0, 1) if lanes > 1]
    zero = ir.Constant(ir.VectorType(word, max(lanes // 2, 1)), None)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(len(xs) * len(ws))]
    with cgutils.for_range(builder, pieces) as loop:
        at = builder.add(start, builder.mul(loop.index, ir.Constant(start.type, lanes)))

        def load(pointer):  # type: ignore[no-untyped-def]
            vector = ir.VectorType(pointer.type.pointee, lanes)
            value = builder.load(builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer()))
            value.align = 1
            return builder.sext(value, ir.VectorType(word, lanes))

        weights = [load(w) for w in ws]
        products = (builder.mul(x, w) for x in map(load, xs) for w in weights)
        for total, product in zip(totals, products, strict=True):
            parts = [builder.shuffle_vector(product, product, half) for half in halves] or [product]
            builder.store(builder.add(builder.load(total), reduce(builder.add, parts)), total)
    return [builder.load(total) for total in totals]


@intrinsic
def _whole_products(typingctx, X, rows, W, actions, lo, hi):  # type: ignore[no-untyped-def]
    """The sums of X[i, lo:hi] W[k, lo:hi] for i in `rows` and k in `actions`, of int8 and 16-bit numbers."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        X, rows, W, actions, lo, hi = args

        def pointers(kind, array, chosen):  # type: ignore[no-untyped-def]
            array = context.make_array(kind)(context, builder, array)
            first = [[builder.extract_value(chosen, n), lo] for n in range(chosen.type.count)]
            return [cgutils.get_item_pointer(context, builder, kind, array, index) for index in first]

        xs, ws = pointers(signature.args[0], X, rows), pointers(signature.args[2], W, actions)
        width, lanes = builder.sub(hi, lo), ir.Constant(lo.type, LANES)
        pieces = builder.udiv(width, lanes)
        done = builder.mul(pieces, lanes)
        many = _sums(builder, xs, ws, LANES, ir.Constant(lo.type, 0), pieces)
        few = _sums(builder, xs, ws, 1, done, builder.sub(width, done))
        word = ir.IntType(32)
        kind = ir.FunctionType(word, [many[0].type])
        add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.add.v{LANES // 2}i32")
        zero = ir.Constant(word, 0)
        totals = [builder.add(builder.call(add, [a]), builder.extract_element(b, zero))
                  for a, b in zip(many, few, strict=True)]  # fmt: skip
        return context.make_tuple(builder, signature.return_type, totals)

    sums = types.UniTuple(types.int32, len(rows) * len(actions))
    return sums(X, rows, W, actions, types.intp, types.intp), generate


def _products(X, rows, W, actions, lo, hi):  # type: ignore[no-untyped-def]
    """The sums of X[i, lo:hi] W[k, lo:hi] for four rows and one or two actions: what is loaded serves several times."""


@overload(_products)
def _products_of(X, rows, W, actions, lo, hi):  # type: ignore[no-untyped-def]
    if isinstance(X.dtype, types.Integer):
        return lambda X, rows, W, actions, lo, hi: _whole_products(X, rows, W, actions, lo, hi)  # type: ignore[call-arg]

    def two(X, rows, W, actions, lo, hi):  # type: ignore[no-untyped-def]
        (h, i, j, k), (a, b) = rows, actions
        v0, v1, v2, v3, w0, w1, w2, w3 = _eight_dots(
            X[h, lo:hi], X[i, lo:hi], X[j, lo:hi], X[k, lo:hi], W[a, lo:hi], W[b, lo:hi]
        )
        return v0, w0, v1, w1, v2, w2, v3, w3

    def one(X, rows, W, actions, lo, hi):  # type: ignore[no-untyped-def]
        h, i, j, k = rows
        return _dot_four(X[h, lo:hi], X[i, lo:hi], X[j, lo:hi], X[k, lo:hi], W[actions[0], lo:hi])

    return two if len(actions) == 2 else one


@_jit
def _largest(w):  # type: ignore[no-untyped-def]
    """max |w|. Magnitudes compare as the whole numbers with their bits do, and a maximum of those vectorises."""
    bits, most = w.view(np.int32), np.int32(0)
    for d in range(len(bits)):
        most = np.int32(max(most, np.int32(bits[d] & 0x7FFFFFFF)))
    found = np.empty(1, np.int32)
    found[0] = most
    return found.view(np.float32)[0]


def _counted(X, W):  # type: ignore[no-untyped-def]
    """(N, unit): W_k = unit_k N_k, in whole numbers up to REACH where X has such, so that no element has to be
    converted; else as it is."""


@overload(_counted)
def _counted_of(X, W):  # type: ignore[no-untyped-def]
    def rounded(X, W):  # type: ignore[no-untyped-def]
        N, unit = np.empty(W.shape, np.int16), np.empty(len(W), np.float32)
        for k in range(len(W)):
            unit[k] = _largest(W[k]) / f32(REACH)
            quantise(W[k], unit[k] if unit[k] > _ZERO else _ONE, N[k])
        return N, unit

    def plain(X, W):  # type: ignore[no-untyped-def]
        return W, np.ones(len(W), np.float32)

    return rounded if isinstance(X.dtype, types.Integer) else plain


@_jit
def counted(X, W):  # type: ignore[no-untyped-def]
    """The same for whoever keeps it: W_target stays as it is for many steps."""
    return _counted(X, W)


@_jit
def _places(kinds, n):  # type: ignore[no-untyped-def]
    """(places, many): kinds is k, for k < n, at places[k, : many[k]]. What follows them there is the place behind the
    last, so that they can be taken four at a time."""
    B = kinds.shape[0]
    places, many = np.full((n, B + 3), B), np.zeros(n, np.intp)
    for i in range(B):
        k = kinds[i]
        if k >= 0:
            places[k, many[k]] = i
            many[k] += 1
    return places, many


@_jit
def _add_products(X, rows, places, many, W, k, unit, lo, hi, q):  # type: ignore[no-untyped-def]
    """q_i += unit_k X[rows_i, lo:hi] W[k, lo:hi] for the first places i, four at a time."""
    for n in range(0, many, 4):
        at = places[n], places[n + 1], places[n + 2], places[n + 3]
        sums = _products(X, (rows[at[0]], rows[at[1]], rows[at[2]], rows[at[3]]), W, (k,), lo, hi)
        for j in range(4):
            q[at[j]] += unit[k] * f32(sums[j])


@_jit
def _add_by_action(X, rows, places, many, step, W):  # type: ignore[no-untyped-def]
    """W_k += sum of step_i X[rows_i] over the places i of action k."""
    for k in range(W.shape[0]):
        for lo in range(0, W.shape[1], STORED_BLOCK):
            hi = min(lo + STORED_BLOCK, W.shape[1])
            _add_features(X, rows, places[k, : many[k]], step, lo, hi, W[k, lo:hi])


@intrinsic
def _prefetch(typingctx, X, i, j):  # type: ignore[no-untyped-def]
    """Ask for the cache line of X[i, j] without waiting for it."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = cgutils.get_item_pointer(context, builder, signature.args[0], array, args[1:])
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, keep, data = (ir.Constant(word, k) for k in (0, 2, 1))  # in the second cache: the first is too small
        builder.call(hint, [builder.bitcast(address, pointer), to_read, keep, data])

    return types.void(X, types.intp, types.intp), generate


@_jit
def _fetch(X, row, after):  # type: ignore[no-untyped-def]
    """Rows are drawn at random from a memory larger than any cache: the first block of each is asked for ahead, with
    that of the row after it. The rest the processor sees coming."""
    for j in range(0, min(STORED_BLOCK, X.shape[1]), CACHE_LINE // X.itemsize):
        _prefetch(X, row, j)  # type: ignore[call-arg]
        _prefetch(X, after, j)


@_jit
def stored_step(  # type: ignore[no-untyped-def]
    kind, Omega, b, items, X, scale, joined, A, R, discount, S_next, u, size, eta, W, W_target, N_target, unit_target,
    phi,
):  # fmt: skip
    """The same step where the replay keeps Phi(s) as scale * X, in float32 or int8.

    The features of s' are those of the row after it, if that goes on from it; at the end of an episode they are made
    anew, in phi (R,), unless it has no future to value. W_target, `counted` as (N_target, unit_target), values the one
    action that W chose, and no other.
    """
    rows = drawn(u, size)
    B, (actions, width) = rows.shape[0], W.shape
    # The place behind the last is for what fills up fours.
    q, future, step = np.zeros(B + 1, np.float32), np.zeros(B + 1, np.float32), np.empty(B, np.float32)
    q_next, best = np.zeros((B + 1, actions), np.float32), np.full(B, -1)
    a, goes_on, own = A[rows], joined[rows], np.append(rows, rows[:1])
    after = own + 1
    for i in range(B + 1):
        if after[i] == X.shape[0]:
            after[i] = 0
        _fetch(X, own[i], after[i])
    inner, inside = _places(goes_on.astype(np.intp) - 1, 1)
    mine, many = _places(a, actions)
    N, unit = _counted(X, W)
    for lo in range(0, width, STORED_BLOCK):
        hi = min(lo + STORED_BLOCK, width)
        for n in range(0, inside[0], 4):
            at = inner[0, n], inner[0, n + 1], inner[0, n + 2], inner[0, n + 3]
            four = after[at[0]], after[at[1]], after[at[2]], after[at[3]]
            for k in range(0, actions - 1, 2):
                sums = _products(X, four, N, (k, k + 1), lo, hi)
                for j in range(4):
                    q_next[at[j], k] += unit[k] * f32(sums[2 * j])
                    q_next[at[j], k + 1] += unit[k + 1] * f32(sums[2 * j + 1])
        if actions % 2:
            _add_products(X, after, inner[0], inside[0], N, actions - 1, unit, lo, hi, q_next[:, -1])
        for k in range(actions):
            _add_products(X, own, mine[k], many[k], N, k, unit, lo, hi, q)
    for i in range(B):
        if goes_on[i]:
            best[i] = _argmax(q_next[i])
    chosen, often = _places(best, actions)
    for k in range(actions):
        for lo in range(0, width, STORED_BLOCK):
            hi = min(lo + STORED_BLOCK, width)
            _add_products(X, after, chosen[k], often[k], N_target, k, unit_target, lo, hi, future)
    total = f32(0.0)
    for i in range(B):
        row = rows[i]
        value = scale * future[i]
        if not goes_on[i] and discount[row] > _ZERO:
            _encode(kind, S_next[row], Omega, b, items, 0, _dimension(kind, Omega, items), phi)
            _add_values(phi, W, 0, width, q_next[i])
            value = _dot(phi, W_target[_argmax(q_next[i])])
        delta = R[row] + discount[row] * value - scale * q[i]
        total += abs(delta)
        step[i] = f32(eta) * delta * scale
    _add_by_action(X, rows, mine, many, step, W)
    return total


@_jit
def quantise(phi, scale, row):  # type: ignore[no-untyped-def]
    """row = phi / scale, rounded: whoever calls has seen to it that it fits."""
    up = _ONE / scale
    for d in range(phi.shape[0]):
        row[d] = row.dtype.type(np.floor(phi[d] * up + _HALF))


@_jit
def bellman(r, discount, a, Q, Q_V, trace, double, low, high, value, y, residual):  # type: ignore[no-untyped-def]
    """Targets of consecutive transitions, the last first, into y, and y - Q_V of each row's action into residual:

    y_t = clip(r_t + discount_t v_t+1),   v_t = (1 - trace) max_a Q(s_t, a) + trace y_t

    With `double` the maximum counts for no more than what Q_V makes of the action that attains it. `value` is v of the
    state after the last row. Returns v of the first, and the sum of (y - Q)^2.
    """
    squares = 0.0
    for t in range(len(r) - 1, -1, -1):
        k, choice = a[t], _argmax(Q[t])
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


@_jit
def values(X, W, Q):  # type: ignore[no-untyped-def]
    """Q = X W^T for rows W of a few actions: general products of matrices are made for many."""
    whole = X.shape[0] // 4 * 4
    for k in range(0, W.shape[0], 2):
        j = min(k + 1, W.shape[0] - 1)  # the last of an odd number is its own partner
        for t in range(0, whole, 4):
            v0, v1, v2, v3, w0, w1, w2, w3 = _eight_dots(X[t], X[t + 1], X[t + 2], X[t + 3], W[k], W[j])
            Q[t, k], Q[t + 1, k], Q[t + 2, k], Q[t + 3, k] = v0, v1, v2, v3
            Q[t, j], Q[t + 1, j], Q[t + 2, j], Q[t + 3, j] = w0, w1, w2, w3
        for t in range(whole, X.shape[0]):
            Q[t, k], Q[t, j] = _two_dots(X[t], W[k], W[j])


@_jit
def add_products(X, a, residual, b):  # type: ignore[no-untyped-def]
    """b_k += sum of residual_t X_t over the rows of action k: a row counts for its action alone."""
    places, many = _places(a, b.shape[0])
    _add_by_action(X, np.arange(X.shape[0]), places, many, residual, b)


@_jit
def sweep(X, W, r, discount, a, Q_V, trace, double, low, high, rows, y, b):  # type: ignore[no-untyped-def]
    """Targets of all rows into y, b_k += sum of (y - Q_V) X over the rows of action k. Returns the sum of (y - Q)^2.

    From the last row to the first, since y needs what comes after it, and `rows` at a time: a block's values, targets
    and products are made while it is in the cache.
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


@_jit
def keep(kind, Omega, b, items, z, seen, phi, scale, X, row):  # type: ignore[no-untyped-def]
    """X[row] = Phi(z) / scale, rounded where X has whole numbers; leaves Phi(z) in phi."""
    refresh(kind, Omega, b, items, z, seen, phi)
    if X.itemsize == 1:
        quantise(phi, scale, X[row])
    else:
        X[row] = phi


@njit(cache=True, fastmath=_FAST, nogil=True, error_model="numpy")  # who asks for zeros to divide by does not vectorise
def adam(theta, g, mean, square, lr, t):  # type: ignore[no-untyped-def]
    """Adam's step t = 1, 2, ... with its usual constants, in one loop instead of a dozen."""
    rate = f32(lr / (1 - 0.9**t))
    up = f32(1 / np.sqrt(1 - 0.999**t))
    for d in range(theta.shape[0]):
        mean[d] += f32(0.1) * (g[d] - mean[d])
        square[d] += f32(0.001) * (g[d] * g[d] - square[d])
        theta[d] -= rate * mean[d] / (up * np.sqrt(square[d]) + f32(1e-8))
