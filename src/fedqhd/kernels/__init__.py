"""Compiled loops that encode and act, or encode and learn, in one pass. Only this package uses numba.

    cache          `jit`, the decorator of all kernels, and their cache on disk
    fourier        cosines of random Fourier features
    kinds          constants for the kinds of encoders
    encode         features of a state, of a batch, of a block of components
    products       dot products of features and weights, sums of features
    integers       the same for features in int8
    matrices       products of small matrices
    actions        values of states, greedy and epsilon-greedy actions
    memory         storing and drawing rows of a memory of transitions
    td             steps of TD learning: online, replay, replay of stored features
    least_squares  targets and sums of a sweep of least squares
    optimiser      Adam
    network        values, gradient and steps of the network of a DQN
    control        steps of Gymnasium's classic control tasks, with Gymnasium's bits
    steps          steps of a user's own environment
    calls          calls to functions by their address: steps of environments, random numbers
    records        agents and models as records of arrays and numbers
    players        how the agents of records act and learn
    episode        whole episodes: acting, stepping the environment and learning

Tests compare every kernel with an implementation in plain numpy (`Encoder.__call__`, the functions of `agents/td.py`,
and for networks those of the tests themselves). The kernels work in float32 and agree with numpy to about 1e-5. Where
features are stored as int8, weights are rounded as well, to multiples of 1/4095 of the largest, but only for the
computation of values. `cosines`, which `Encoder.__call__` uses itself, works in float64 and agrees with numpy to 1e-14.

Features are computed in blocks of `BLOCK` components, so that a block stays in the first-level cache until it is used
and no (B, D) array of features is needed.
"""

import importlib
from typing import Any

# The module of each kernel. It is imported when the kernel is first used, because importing numba takes as long as all
# other imports together, and commands such as `--help` do not need it.
_HOME = {
    "acrobot": "control",
    "act": "actions",
    "add_products": "least_squares",
    "advance": "episode",
    "approach": "network",
    "BAD_ACTION": "episode",
    "BAD_REWARD": "episode",
    "BAD_STEP": "episode",
    "bellman": "least_squares",
    "BLOCK": "encode",
    "cartpole": "control",
    "CompilationError": "steps",
    "COMPLEX": "kinds",
    "cosines": "fourier",
    "dense_trace_step": "traces",
    "draw_rows": "memory",
    "encode_batch": "encode",
    "Encoded": "records",
    "ENDED": "episode",
    "epsilon_greedy": "actions",
    "Fitted": "records",
    "FORGOTTEN": "traces",
    "FOURIER": "kinds",
    "Greedy": "records",
    "greedy": "actions",
    "MANY": "episode",
    "mountain_car": "control",
    "NEAR": "offsets",
    "network_descend": "network",
    "network_forward": "network",
    "network_scratch": "network",
    "network_step": "network",
    "network_values": "network",
    "Network": "records",
    "Online": "records",
    "online_step": "td",
    "play": "episode",
    "NEVER": "episode",
    "PLAYING": "episode",
    "PRECOMPUTED": "kinds",
    "put_transition": "memory",
    "q_batch": "actions",
    "REACH": "integers",
    "Recomputed": "records",
    "refresh": "encode",
    "replay_step": "td",
    "Ring": "records",
    "round_weights": "integers",
    "sparse_trace_step": "traces",
    "sparse_values": "traces",
    "step_of": "steps",
    "step_once": "episode",
    "store_features": "memory",
    "Stored": "records",
    "STORED_BLOCK": "products",
    "stored_step": "td",
    "sweep": "least_squares",
    "switch_on": "offsets",
    "SYMBOLIC": "kinds",
    "values": "least_squares",
    "World": "episode",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedqhd.kernels' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"fedqhd.kernels.{_HOME[name]}"), name)
    return value
