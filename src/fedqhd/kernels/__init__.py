"""The fused loops: encode and act, encode and learn, without a trip through numpy. Only this package uses numba.

    cache          `jit`, the decorator of all kernels, and their cache on disk
    fourier        cosines of random Fourier features
    kinds          of encoders
    encode         features of a state, of a batch, of a block of components
    products       dot products of features and weights, sums of features
    integers       the same for features in int8
    actions        values of states, greedy and epsilon-greedy actions
    memory         rows of the memory of transitions
    td             steps of TD learning: online, replay, replay of stored features
    least_squares  targets and sums of a sweep
    optimiser      Adam

Every kernel has a plain numpy twin that tests compare it with (`Encoder.__call__` and the reference functions of
`agents/td.py`). The kernels work in float32 and agree with it to about 1e-5. Where features are kept as int8, weights
are rounded as well, to a 4,095th of the largest, but only for the computation of values. `cosines`, which
`Encoder.__call__` uses itself, works in float64 and agrees with numpy to 1e-14.

Features are made in blocks of `BLOCK` components, so that what a block touches stays in the first-level cache and no
(B, D) array of them travels through numpy.
"""

import importlib
from typing import Any

# Where each kernel lives. They are imported when first used, since numba takes as long to import as all else together,
# and who only asks for help, or gives a setting that is refused, has no use for it.
_HOME = {
    "BLOCK": "encode",
    "COMPLEX": "kinds",
    "FOURIER": "kinds",
    "GIVEN": "kinds",
    "REACH": "integers",
    "STORED_BLOCK": "products",
    "SYMBOLIC": "kinds",
    "act": "actions",
    "adam": "optimiser",
    "add_products": "least_squares",
    "bellman": "least_squares",
    "cosines": "fourier",
    "counted": "integers",
    "drawn": "memory",
    "encode_batch": "encode",
    "greedy": "actions",
    "keep": "memory",
    "online_step": "td",
    "put": "memory",
    "q_batch": "actions",
    "refresh": "encode",
    "replay_step": "td",
    "stored_step": "td",
    "sweep": "least_squares",
    "values": "least_squares",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedqhd.kernels' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"fedqhd.kernels.{_HOME[name]}"), name)
    return value
