"""Features in int8, and their products with weights in integer arithmetic.

Where features are stored as int8, weights are rounded to integers up to REACH for the computation of values, so that no
element has to be converted. `row_products` multiplies four rows of features by one or two rows of weights, whatever
type the features have.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fedqhd.kernels.cache import jit
from fedqhd.kernels.products import dot_four, eight_dots

REACH = 4095
"""The largest rounded weight, for which the sum of STORED_BLOCK products with int8 fits into 32 bits."""
LANES = 32
"""Number of products that are computed at a time."""

f32 = np.float32
_ZERO, _HALF, _ONE = f32(0.0), f32(0.5), f32(1.0)


def _sums(builder, xs, ws, lanes, start, pieces):
    """Build LLVM code for the sums of x w over `pieces` of `lanes` elements from `start` on, for each x and w.

    Each sum is a vector whose elements still have to be added. Products of neighbours are added first: on most machines
    that is one instruction for all lanes, which LLVM does not find in a plain loop.
    """
    word = ir.IntType(32)
    halves = [ir.Constant(ir.VectorType(word, lanes // 2), list(range(k, lanes, 2))) for k in (0, 1) if lanes > 1]
    zero = ir.Constant(ir.VectorType(word, max(lanes // 2, 1)), None)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(len(xs) * len(ws))]
    with cgutils.for_range(builder, pieces) as loop:
        at = builder.add(start, builder.mul(loop.index, ir.Constant(start.type, lanes)))

        def load(pointer):
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
def _integer_products(typingctx, X, rows, W, actions, lo, hi):
    """Return the sums of X[i, lo:hi] W[k, lo:hi] for i in `rows` and k in `actions`, where X is int8 and W int16."""

    def generate(context, builder, signature, args):
        X, rows, W, actions, lo, hi = args

        def pointers(kind, array, chosen):
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


def row_products(X, rows, W, actions, lo, hi):
    """Return the sums of X[i, lo:hi] W[k, lo:hi] for four rows i and one or two actions k, with k running fastest.

    It can only be called from a kernel.
    """


@overload(row_products)
def _row_products(X, rows, W, actions, lo, hi):
    if isinstance(X.dtype, types.Integer):
        return lambda X, rows, W, actions, lo, hi: _integer_products(X, rows, W, actions, lo, hi)  # type: ignore[call-arg]

    def two(X, rows, W, actions, lo, hi):
        (h, i, j, k), (a, b) = rows, actions
        v0, v1, v2, v3, w0, w1, w2, w3 = eight_dots(
            X[h, lo:hi], X[i, lo:hi], X[j, lo:hi], X[k, lo:hi], W[a, lo:hi], W[b, lo:hi]
        )
        return v0, w0, v1, w1, v2, w2, v3, w3

    def one(X, rows, W, actions, lo, hi):
        h, i, j, k = rows
        return dot_four(X[h, lo:hi], X[i, lo:hi], X[j, lo:hi], X[k, lo:hi], W[actions[0], lo:hi])

    return two if len(actions) == 2 else one


@jit
def add_row_products(X, rows, places, many, W, k, unit, lo, hi, q):
    """Add unit_k X[rows_i, lo:hi] W[k, lo:hi] to q_i for the first `many` places i, four at a time."""
    for n in range(0, many, 4):
        at = places[n], places[n + 1], places[n + 2], places[n + 3]
        sums = row_products(X, (rows[at[0]], rows[at[1]], rows[at[2]], rows[at[3]]), W, (k,), lo, hi)
        for j in range(4):
            q[at[j]] += unit[k] * f32(sums[j])


@jit
def quantise(phi, scale, row):
    """Write phi / scale, rounded, to row. The caller makes sure that it fits into the type of row."""
    up = _ONE / scale
    for d in range(phi.shape[0]):
        row[d] = row.dtype.type(np.floor(phi[d] * up + _HALF))


@jit
def _largest(w):
    """Return max |w|, computed as a maximum of integers, which vectorises: magnitudes are ordered like their bits."""
    bits, most = w.view(np.int32), np.int32(0)
    for d in range(len(bits)):
        most = np.int32(max(most, np.int32(bits[d] & 0x7FFFFFFF)))
    found = np.empty(1, np.int32)
    found[0] = most
    return found.view(np.float32)[0]


def rounded_weights(X, W):
    """Return (N, unit) with W_k = unit_k N_k. N contains integers up to REACH if X does; otherwise N is W.

    It can only be called from a kernel.
    """


@overload(rounded_weights)
def _rounded_weights(X, W):
    def rounded(X, W):
        N, unit = np.empty(W.shape, np.int16), np.empty(len(W), np.float32)
        for k in range(len(W)):
            unit[k] = _largest(W[k]) / f32(REACH)
            quantise(W[k], unit[k] if unit[k] > _ZERO else _ONE, N[k])
        return N, unit

    def plain(X, W):
        return W, np.ones(len(W), np.float32)

    return rounded if isinstance(X.dtype, types.Integer) else plain


@jit
def round_weights(X, W):
    """Call `rounded_weights` from Python. The weights of a target are rounded once for each synchronisation."""
    return rounded_weights(X, W)
