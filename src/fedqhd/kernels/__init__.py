"""The fused loops: encode and act, encode and learn, without a trip through numpy. Only this package uses numba.

    cache          `jit`, the decorator of all kernels, and their cache on disk
    fourier        cosines of random Fourier features
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

from fedqhd.kernels.actions import act, greedy, q_batch
from fedqhd.kernels.encode import BLOCK, COMPLEX, FOURIER, GIVEN, SYMBOLIC, encode_batch, refresh
from fedqhd.kernels.fourier import cosines
from fedqhd.kernels.integers import REACH, counted
from fedqhd.kernels.least_squares import add_products, bellman, sweep, values
from fedqhd.kernels.memory import drawn, keep, put
from fedqhd.kernels.optimiser import adam
from fedqhd.kernels.products import STORED_BLOCK
from fedqhd.kernels.td import online_step, replay_step, stored_step

__all__ = [
    "BLOCK",
    "COMPLEX",
    "FOURIER",
    "GIVEN",
    "REACH",
    "STORED_BLOCK",
    "SYMBOLIC",
    "act",
    "adam",
    "add_products",
    "bellman",
    "cosines",
    "counted",
    "drawn",
    "encode_batch",
    "greedy",
    "keep",
    "online_step",
    "put",
    "q_batch",
    "refresh",
    "replay_step",
    "stored_step",
    "sweep",
    "values",
]
