"""Calls from a kernel to functions that it is given as addresses, and a fence around the code of a kernel.

An address is a plain integer, so one kernel, compiled and cached once, serves every environment and every generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_REAL, _SINGLE, _INTEGER, _BYTE = ir.DoubleType(), ir.FloatType(), ir.IntType(64), ir.IntType(8)

STEP = types.boolean(
    types.CPointer(types.float64), types.CPointer(types.float64), types.int64, types.CPointer(types.float32),
    types.CPointer(types.float64),
)  # fmt: skip
"""The signature of a compiled environment's step: (constants, state, action, observation, reward) -> terminated."""


def in_llvm(function: Callable[..., Any]) -> Any:
    """Return numba's `intrinsic` of a function; the type checker does not look at its calls."""
    return intrinsic(function)


@in_llvm
def keep_apart(typingctx):
    """Keep the function that calls this from being inlined.

    The compiler orders the sums of an inlined function by what surrounds it. A function that is kept apart has the same
    code, and so the same bits, whether Python calls it or another kernel.
    """

    def generate(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@in_llvm
def draw(typingctx, next_double, generator):
    """Return a uniform number in [0, 1), the one that `Generator.random()` would return next.

    The arguments are the addresses of the generator's function and state. Passing the generator itself to a kernel
    would take thirty times as long as a step.
    """

    def generate(context, builder, signature, args):
        function = ir.FunctionType(_REAL, [_BYTE.as_pointer()])
        pointer = builder.inttoptr(args[0], function.as_pointer())
        return builder.call(pointer, [builder.inttoptr(args[1], _BYTE.as_pointer())])

    return types.float64(types.intp, types.intp), generate


@in_llvm
def call_step(typingctx, address, constants, state, action, observation, reward):
    """Call the step of a compiled environment and return whether the episode terminated; see `STEP`."""

    def generate(context, builder, signature, args):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, args[k]).data

        real, single = _REAL.as_pointer(), _SINGLE.as_pointer()
        function = ir.FunctionType(_BYTE, [real, real, _INTEGER, single, real])
        pointer = builder.inttoptr(args[0], function.as_pointer())
        terminated = builder.call(pointer, [data(1), data(2), args[3], data(4), data(5)])
        return builder.icmp_unsigned("!=", terminated, ir.Constant(_BYTE, 0))

    return types.boolean(types.intp, constants, state, types.int64, observation, reward), generate
