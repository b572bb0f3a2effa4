"""The step of a user's own environment, compiled from functions of tuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import carray, literal_unroll, njit  # type: ignore[attr-defined]
from numba.core.errors import NumbaError
from numba.np.unsafe.ndarray import to_fixed_tuple

from fedqhd.kernels.cache import StepFunction, jit

CompilationError = NumbaError
as_tuple: Any = to_fixed_tuple


@jit
def write(values, out):
    """Write the numbers of a tuple to out. They may have several types, such as a velocity and 0."""
    j = 0
    for value in literal_unroll(values):
        out[j] = value
        j += 1  # noqa: SIM113 (enumerate cannot be unrolled)


def step_of(transition: Callable[..., Any], observe: Callable[..., Any], n: int) -> tuple[Any, Any, StepFunction]:
    """Compile the functions of a user's environment.

    Args:
        transition: (state, action) -> (next state, reward, terminated), where states are tuples of floats.
        observe: state -> observation, a tuple of floats.
        n: The length of a state.

    Returns:
        Both functions, compiled with exact operations, and the step for kernels that consists of them.

    Raises:
        CompilationError: If numba cannot compile them.
    """
    moved, seen = njit(transition, error_model="numpy"), njit(observe, error_model="numpy")

    def step(constants, state, action, observation, reward):
        x = carray(state, n)
        after, r, terminated = moved(as_tuple(x, n), action)
        write(after, x)
        write(seen(as_tuple(x, n)), observation)
        reward[0] = r
        return terminated

    compiled = StepFunction(step)
    compiled.address  # noqa: B018 (compile it here, where errors are expected)
    return moved, seen, compiled
