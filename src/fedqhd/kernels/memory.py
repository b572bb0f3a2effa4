"""The memory of transitions: writing a row, drawing rows, storing features."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedqhd.kernels.cache import jit
from fedqhd.kernels.calls import keep_apart
from fedqhd.kernels.encode import refresh
from fedqhd.kernels.integers import quantise
from fedqhd.kernels.products import STORED_BLOCK

CACHE_LINE = 64
"""Bytes in a line of the processor's cache."""


@jit
def put_transition(S, A, R, D, S_next, joined, i, any_before, s, a, r, discount, s_next):
    """Write a transition to row i of a ring, and to `joined` whether the row before it continues in row i.

    Rows are overwritten in order, so a row that is joined to the next stays joined for as long as it exists.
    """
    same = any_before
    for j in range(s.shape[0]):
        same = same and S_next[i - 1, j] == s[j]
    joined[i - 1] = same
    for j in range(s.shape[0]):
        S[i, j] = s[j]
        S_next[i, j] = s_next[j]
    A[i], R[i], D[i], joined[i] = a, r, discount, False


@jit
def copy_to(x, out):
    """Copy x to out. A kernel without reference counts cannot use `out[:] = x`."""
    for j in range(x.shape[0]):
        out[j] = x[j]


@jit
def draw_rows(u, size):
    """Return a row below `size` for each u in [0, 1)."""
    return (u * size).astype(np.intp)


@jit
def store_features(kind, Omega, b, items, z, cached, phi, scale, X, row):
    """Write Phi(z) / scale to X[row], rounded if X is int8; in float32, scale is 1. Phi(z) is left in phi."""
    keep_apart()
    refresh(kind, Omega, b, items, z, cached, phi)
    if X.itemsize == 1:
        quantise(phi, scale, X[row])
    else:
        X[row] = phi


@intrinsic
def _prefetch(typingctx, X, i, j):
    """Prefetch the cache line of X[i, j]."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = cgutils.get_item_pointer(context, builder, signature.args[0], array, args[1:])
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # A read of data (not instructions) into the second-level cache, since the first is too small.
        to_read, level, data = (ir.Constant(word, k) for k in (0, 2, 1))
        builder.call(hint, [builder.bitcast(address, pointer), to_read, level, data])

    return types.void(X, types.intp, types.intp), generate


@jit
def fetch(X, row, after):
    """Prefetch the first blocks of X[row] and X[after].

    Rows are drawn at random from a memory larger than any cache. The processor prefetches the blocks that follow by
    itself.
    """
    for j in range(0, min(STORED_BLOCK, X.shape[1]), CACHE_LINE // X.itemsize):
        _prefetch(X, row, j)  # type: ignore[call-arg]
        _prefetch(X, after, j)
