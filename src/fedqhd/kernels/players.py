"""Agents as records of arrays, and how they act and learn in a kernel.

A record is what `in_kernel` of a learner or a model returns. For each of them, `choose` and `learn` do what the methods
`act` and `observe` do, by the same kernels and with the same random numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.extending import overload

from fedqhd.kernels.actions import act, argmax, q_batch
from fedqhd.kernels.cache import UNCOUNTED
from fedqhd.kernels.calls import draw
from fedqhd.kernels.memory import copy_to, put_transition, store_features
from fedqhd.kernels.td import online_step, replay_step, stored_step

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


def has_room(agent):
    """Return whether the memory of an agent has room for another transition."""


def choose(agent, z, epsilon):
    """Return the action in the scaled state z, or -1 if Q is not finite."""


def learn(agent, z, a, r, discount, z_next):
    """Learn from a transition and return the TD error, or 0 if there is none."""


@overload(has_room, jit_options=UNCOUNTED)
def _has_room(agent):
    if agent.instance_class is Fitted:
        return lambda agent: agent.counts[SIZE] < len(agent.a)
    return lambda agent: True


@overload(choose, jit_options=UNCOUNTED)
def _choose(agent, z, epsilon):
    if agent.instance_class is Greedy:
        return _choose_greedy
    return _choose_epsilon_greedy


def _choose_greedy(agent, z, epsilon):
    q_batch(agent.kind, agent.Omega, agent.b, agent.items, z.reshape(1, -1), agent.W, agent.phi, agent.q)
    return argmax(agent.q[0])


def _choose_epsilon_greedy(agent, z, epsilon):
    own = agent.own
    u_explore = draw(own.next_double, own.generator)
    u_action = draw(own.next_double, own.generator)
    return act(
        own.kind, own.Omega, own.b, own.items, z, own.cached, own.phi, own.W, own.q, epsilon, u_explore, u_action
    )


@overload(learn, jit_options=UNCOUNTED)
def _learn(agent, z, a, r, discount, z_next):
    return _LEARN[agent.instance_class]


def _learn_nothing(agent, z, a, r, discount, z_next):
    return 0.0


def _learn_online(agent, z, a, r, discount, z_next):
    own = agent.own
    delta = online_step(
        own.kind, own.Omega, own.b, own.items, z, a, r, discount, z_next, agent.eta, own.cached, own.phi,
        agent.phi_next, own.W,
    )  # fmt: skip
    copy_to(agent.phi_next, own.phi)  # Phi(s') becomes Phi(s) in the next step
    copy_to(z_next, own.cached)
    return delta


def _learn_stored(agent, z, a, r, discount, z_next):
    own, m = agent.own, agent.memory
    row = agent.counts[AT]
    put_transition(
        m.s, m.a, m.r, m.discount, m.s_next, m.joined, row, agent.counts[SIZE] > 0, z, a, r, discount, z_next
    )
    store_features(own.kind, own.Omega, own.b, own.items, z, own.cached, own.phi, m.scale, m.X, row)
    if not _due(agent, row):
        return 0.0
    return stored_step(
        own.kind, own.Omega, own.b, own.items, m.X, m.scale, m.joined, m.a, m.r, m.discount, m.s_next, agent.u,
        agent.counts[SIZE], agent.eta, own.W, agent.W_target, agent.N_target, agent.unit_target, agent.phi_next,
    )  # fmt: skip


def _learn_recomputed(agent, z, a, r, discount, z_next):
    own, m = agent.own, agent.memory
    row = agent.counts[AT]
    put_transition(
        m.s, m.a, m.r, m.discount, m.s_next, m.joined, row, agent.counts[SIZE] > 0, z, a, r, discount, z_next
    )
    if not _due(agent, row):
        return 0.0
    return replay_step(
        own.kind, own.Omega, own.b, own.items, m.s, m.a, m.r, m.discount, m.s_next, agent.u, agent.counts[SIZE],
        agent.eta, own.W, agent.W_target, agent.batch,
    )  # fmt: skip


def _learn_fitted(agent, z, a, r, discount, z_next):
    own, row, step = agent.own, agent.counts[SIZE], agent.counts[STEPS]
    copy_to(z, agent.s[row])
    agent.a[row], agent.r[row], agent.discount[row] = a, r, discount
    agent.first[row] = agent.counts[AT] == 0
    store_features(own.kind, own.Omega, own.b, own.items, z, own.cached, own.phi, agent.scale, agent.X, row)
    agent.rewards[step, 0], agent.rewards[step, 1] = r, discount
    agent.counts[SIZE], agent.counts[STEPS], agent.counts[AT] = row + 1, step + 1, 1
    return 0.0


_LEARN = {
    Greedy: _learn_nothing,
    Online: _learn_online,
    Stored: _learn_stored,
    Recomputed: _learn_recomputed,
    Fitted: _learn_fitted,
}


def _due(agent, row):
    """Count a transition in row `row` of a ring; if an update is due, count that too and draw its minibatch."""


@overload(_due, jit_options=UNCOUNTED)
def _due_in_kernel(agent, row):
    def due(agent, row):
        counts, B, own = agent.counts, len(agent.u), agent.own
        counts[AT] = (row + 1) % len(agent.memory.a)
        counts[SIZE] = max(counts[SIZE], row + 1)
        counts[STEPS] += 1
        if counts[SIZE] < B or counts[STEPS] % agent.update_every:
            return False
        for i in range(B):
            agent.u[i] = draw(own.next_double, own.generator)
        counts[UPDATES] += 1
        return True

    return due
