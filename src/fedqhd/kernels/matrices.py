"""Products of small matrices.

Each element is one sum in the order of its terms, however long the vectors of the processor are and whatever surrounds
the product. The bits of a BLAS depend on its number of threads, and it is no faster for a minibatch of a small network.
Loops over dot products take several times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fedqhd.kernels.cache import jit

LANES = 16
"""Columns that are computed together: a vector of the widest processors."""
_ROWS = 4
"""Rows that are computed together. More rows do not fit into the registers of processors with shorter vectors."""


def _product_of_rows(rows: int) -> Any:
    """Return a function for kernels that computes `rows` rows and LANES columns of a product."""

    @intrinsic
    def product(typingctx, X, Y, row, column, out, i, j):
        """Write (X Y)[row + r, column + c] to out[i + r, j + c] for all r < rows and c < LANES."""

        def generate(context, builder, signature, args):
            vector, word = ir.VectorType(ir.FloatType(), LANES), ir.IntType(32)
            empty, lane = ir.Constant(vector, ir.Undefined), ir.VectorType(word, LANES)
            arrays = {k: context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 1, 4)}
            row, column, i, j = args[2], args[3], args[5], args[6]

            def address(k, *at):
                return cgutils.get_item_pointer(context, builder, signature.args[k], arrays[k], at)

            def block(k, *at):
                return builder.bitcast(address(k, *at), vector.as_pointer())

            def after(index, r):
                return builder.add(index, ir.Constant(index.type, r))

            kind = ir.FunctionType(vector, [vector] * 3)
            multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
            sums = [cgutils.alloca_once(builder, vector) for _ in range(rows)]
            for total in sums:
                builder.store(ir.Constant(vector, None), total)
            terms, _ = cgutils.unpack_tuple(builder, arrays[1].shape)
            with cgutils.for_range(builder, terms) as loop:
                y = builder.load(block(1, loop.index, column), align=4)
                for r, total in enumerate(sums):
                    x = builder.load(address(0, after(row, r), loop.index))
                    first = builder.insert_element(empty, x, ir.Constant(word, 0))
                    everywhere = builder.shuffle_vector(first, empty, ir.Constant(lane, None))
                    builder.store(builder.call(multiply_add, [everywhere, y, builder.load(total)]), total)
            for r, total in enumerate(sums):
                builder.store(builder.load(total), block(4, after(i, r), j), align=4)
            return context.get_dummy_value()

        index = types.intp
        return types.void(X, Y, index, index, out, index, index), generate

    return product


_product_of_many = _product_of_rows(_ROWS)
_product_of_one = _product_of_rows(1)


@jit
def multiply(X, Y, out):
    """Write X Y, or as many of its first columns as out has, to out.

    The arrays are float32, and the columns of each row of Y and out lie side by side. The number of columns of Y is a
    multiple of LANES.
    """
    n, width = out.shape
    whole = width // LANES * LANES
    edge = np.empty((_ROWS, LANES), np.float32)
    row = 0
    while row + _ROWS <= n:
        for column in range(0, whole, LANES):
            _product_of_many(X, Y, row, column, out, row, column)
        if whole < width:
            _product_of_many(X, Y, row, whole, edge, 0, 0)
            out[row : row + _ROWS, whole:] = edge[:, : width - whole]
        row += _ROWS
    while row < n:
        for column in range(0, whole, LANES):
            _product_of_one(X, Y, row, column, out, row, column)
        if whole < width:
            _product_of_one(X, Y, row, whole, edge, 0, 0)
            out[row, whole:] = edge[0, : width - whole]
        row += 1
