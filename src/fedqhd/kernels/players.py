"""How the agents of `records` act and learn in a kernel.

For each record, `choose` and `learn` do what the methods `act` and `observe` of its learner do, by the same kernels and
with the same random numbers.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from fedqhd.kernels.actions import act, argmax, epsilon_greedy, greedy, q_batch
from fedqhd.kernels.cache import UNCOUNTED, exact
from fedqhd.kernels.calls import draw
from fedqhd.kernels.memory import copy_to, put_transition, store_features
from fedqhd.kernels.network import approach, network_step, network_values
from fedqhd.kernels.products import value
from fedqhd.kernels.records import AT, SIZE, STEPS, UPDATES, Fitted, Greedy, Network, Online, Recomputed, Stored
from fedqhd.kernels.td import online_update, replay_step, stored_step


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
    if agent.instance_class is Network:
        return _choose_by_network
    return _choose_online if agent.instance_class is Online else _choose_epsilon_greedy


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


def _choose_online(agent, z, epsilon):
    own = agent.own
    u_explore = draw(own.next_double, own.generator)
    u_action = draw(own.next_double, own.generator)
    if agent.valued[0]:
        return epsilon_greedy(own.q, epsilon, u_explore, u_action)
    return act(
        own.kind, own.Omega, own.b, own.items, z, own.cached, own.phi, own.W, own.q, epsilon, u_explore, u_action
    )


def _choose_by_network(agent, z, epsilon):
    held, actions = agent.held, agent.sizes[-1]
    if held[1] > 0:
        held[1] -= 1
        return held[0]
    u_explore = draw(agent.next_double, agent.generator)
    u_action = draw(agent.next_double, agent.generator)
    if u_explore < epsilon:
        held[0], held[1] = int(u_action * actions), agent.hold - 1
        return held[0]
    network_values(agent.sizes, agent.theta, z, agent.row)
    return greedy(agent.row[-actions:], u_action)


@overload(learn, jit_options=UNCOUNTED)
def _learn(agent, z, a, r, discount, z_next):
    return _LEARN[agent.instance_class]


def _learn_nothing(agent, z, a, r, discount, z_next):
    return 0.0


def _learn_online(agent, z, a, r, discount, z_next):
    own = agent.own
    delta = online_update(
        own.kind, own.Omega, own.b, own.items, own.q[a], a, r, discount, z_next, agent.eta, own.phi, agent.phi_next,
        own.W, agent.q_next,
    )  # fmt: skip
    # What belongs to s' belongs to s in the next step. Only the values of the action whose weights changed are new.
    copy_to(agent.phi_next, own.phi)
    copy_to(z_next, own.cached)
    copy_to(agent.q_next, own.q)
    own.q[a] = value(own.phi, own.W[a])
    agent.valued[0] = True
    return delta


@exact
def _remember(agent, z, a, r, discount, z_next):
    """Put a transition into the ring of an agent, count it, and return its row."""
    m, counts = agent.memory, agent.counts
    row = counts[AT]
    put_transition(m.s, m.a, m.r, m.discount, m.s_next, m.joined, row, counts[SIZE] > 0, z, a, r, discount, z_next)
    counts[AT] = (row + 1) % len(m.a)
    counts[SIZE] = max(counts[SIZE], row + 1)
    counts[STEPS] += 1
    return row


@exact
def _update_due(agent, least):
    """Return whether an agent updates at this step, for which its memory must have at least `least` rows."""
    return agent.counts[SIZE] >= least and agent.counts[STEPS] % agent.update_every == 0


@exact
def _draw(u, next_double, generator):
    """Fill u with uniform numbers."""
    for i in range(len(u)):
        u[i] = draw(next_double, generator)


def _learn_stored(agent, z, a, r, discount, z_next):
    own, m = agent.own, agent.memory
    row = _remember(agent, z, a, r, discount, z_next)
    store_features(own.kind, own.Omega, own.b, own.items, z, own.cached, own.phi, m.scale, m.X, row)
    if not _update_due(agent, len(agent.u)):
        return 0.0
    _draw(agent.u, own.next_double, own.generator)
    agent.counts[UPDATES] += 1
    return stored_step(
        own.kind, own.Omega, own.b, own.items, m.X, m.scale, m.joined, m.a, m.r, m.discount, m.s_next, agent.u,
        agent.counts[SIZE], agent.eta, own.W, agent.W_target, agent.N_target, agent.unit_target, agent.phi_next,
    )  # fmt: skip


def _learn_recomputed(agent, z, a, r, discount, z_next):
    own, m = agent.own, agent.memory
    _remember(agent, z, a, r, discount, z_next)
    if not _update_due(agent, len(agent.u)):
        return 0.0
    _draw(agent.u, own.next_double, own.generator)
    agent.counts[UPDATES] += 1
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


def _learn_by_network(agent, z, a, r, discount, z_next):
    m, counts = agent.memory, agent.counts
    _remember(agent, z, a, r, discount, z_next)
    if counts[STEPS] % agent.target_steps == 0:
        approach(agent.target, agent.theta, agent.target_tau)
    if not _update_due(agent, max(len(agent.u), agent.learning_starts)):
        return 0.0
    for _ in range(agent.gradient_steps):
        _draw(agent.u, agent.next_double, agent.generator)
        total = network_step(
            agent.sizes, agent.theta, agent.target, agent.gradient, agent.mean, agent.square, agent.through,
            agent.slopes, agent.across, m.s, m.a, m.r, m.discount, m.s_next, agent.u, counts[SIZE], agent.huber,
            agent.lr, counts[UPDATES] + 1,
        )  # fmt: skip
        if not np.isfinite(total):
            return total
        counts[UPDATES] += 1
    return 0.0


_LEARN = {
    Greedy: _learn_nothing,
    Online: _learn_online,
    Stored: _learn_stored,
    Recomputed: _learn_recomputed,
    Network: _learn_by_network,
    Fitted: _learn_fitted,
}
