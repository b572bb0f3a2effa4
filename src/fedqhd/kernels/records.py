"""Agents and models as records of arrays and numbers, which kernels take instead of objects.

A record shares its arrays with the object that made it (`in_kernel` of a learner or a model), so that what a kernel
changes in them is changed there, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SIZE, AT, STEPS, UPDATES = range(4)
"""Places in the array `counts` of a record: filled rows of the memory, its next row, steps, and updates."""


class Encoded(NamedTuple):
    """What every learner with an encoder has: the encoder, the last state and its features, weights and a generator."""

    kind: int
    Omega: Any
    b: Any
    items: Any
    cached: Any
    phi: Any
    W: Any
    q: Any
    next_double: int
    """The address of the function that draws a uniform number; `generator` is that of its argument."""
    generator: int


class Online(NamedTuple):
    """An agent of the online learner."""

    own: Encoded
    phi_next: Any
    q_next: Any
    valued: Any
    """Whether q has the values of the cached state under the present weights, (1,)."""
    eta: float


class Ring(NamedTuple):
    """A `Replay` memory."""

    s: Any
    a: Any
    r: Any
    discount: Any
    s_next: Any
    joined: Any
    X: Any
    scale: Any


class Stored(NamedTuple):
    """An agent of the replay learner whose memory stores features."""

    own: Encoded
    memory: Ring
    counts: Any
    u: Any
    update_every: int
    eta: float
    W_target: Any
    N_target: Any
    unit_target: Any
    phi_next: Any


class Recomputed(NamedTuple):
    """An agent of the replay learner whose memory stores no features."""

    own: Encoded
    memory: Ring
    counts: Any
    u: Any
    update_every: int
    eta: float
    W_target: Any
    batch: Any


class Network(NamedTuple):
    """An agent with a network of `kernels.network`, which it trains on minibatches of a `Replay` memory."""

    sizes: Any
    theta: Any
    target: Any
    gradient: Any
    mean: Any
    square: Any
    through: Any
    slopes: Any
    across: Any
    row: Any
    memory: Ring
    counts: Any
    u: Any
    held: Any
    """The exploratory action that is being repeated, and for how many more steps, (2,)."""
    next_double: int
    generator: int
    hold: int
    learning_starts: int
    update_every: int
    gradient_steps: int
    target_steps: int
    target_tau: float
    huber: float
    lr: float


class Fitted(NamedTuple):
    """An agent of the least-squares learner, which learns between episodes. Its memory is a `Trajectories`."""

    own: Encoded
    s: Any
    a: Any
    r: Any
    discount: Any
    first: Any
    X: Any
    scale: Any
    counts: Any
    rewards: Any
    """The rewards and discounts of the steps since the record was made, (k, 2)."""


class Greedy(NamedTuple):
    """A readout that only acts."""

    kind: int
    Omega: Any
    b: Any
    items: Any
    phi: Any
    W: Any
    q: Any
