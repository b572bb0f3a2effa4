"""The learner with eligibility traces: its equations, dense and sparse, and that it resumes within an episode."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import by_hand, live, same
from fedqhd import kernels
from fedqhd.agents.learners.traces import TracesQHD
from fedqhd.agents.td import trace_step
from fedqhd.core.protocols import Transition
from fedqhd.encoders import ComplexFourier, RandomFourier, Triples

S = np.float32([[0.1, -0.3], [1.2, 0.4], [-0.7, 0.9]])
CELLS = np.float32([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])
BOTH = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
KINDS = pytest.mark.parametrize("traces", ["replacing", "accumulating"])


def make(sparse=False, actions=2, seed=0, encoder=None, **settings):
    generator = np.random.default_rng(seed)
    encoder = encoder or (
        Triples.for_grid((2, 2, 1), 64, generator) if sparse else RandomFourier.sample(2, 50, 1.0, generator)
    )
    chosen = by_hand("traces", **{"eta": 0.5, "epsilon_start": 0.3, "epsilon_end": 0.0, **settings})
    return TracesQHD(encoder, actions, chosen, np.random.default_rng(seed))


def states(sparse):
    return CELLS if sparse else S


def play(agent, many, seed, sparse):
    """Walk through a made-up world with episodes of seven steps; return the transitions."""
    world, found = np.random.default_rng(seed), []
    for k in range(many):
        if k % 7 == 0:
            s = states(sparse)[world.integers(3)]
        s_next = states(sparse)[world.integers(3)]
        t = Transition(s, agent.act(s), float(world.normal()), 0.0 if k % 7 == 6 else 0.9, s_next)
        agent.observe(t)
        found.append(t)
        s = s_next
        if k % 7 == 6:
            agent.end_episode()
    return found


def test_one_trace_by_hand():
    """gamma lambda = 0.45. The reward of the second step moves the first by 0.45 of what it moves the second."""
    W, E, phi, psi = np.zeros((2, 1)), np.zeros((2, 1)), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    W, E = trace_step(W, E, phi, 0, 0.0, 0.45, replacing=False)
    assert E.tolist() == [[0.45], [0.0]]
    W, E = trace_step(W, E, psi, 0, 0.5 * 2.0, 0.45, replacing=False)
    assert W.tolist() == [[0.45], [1.0]]
    assert trace_step(W, E, psi, 0, 0.0, 1.0, replacing=False)[1].tolist() == [[0.45**2], [1.45]]
    assert trace_step(W, E, psi, 0, 0.0, 1.0, replacing=True)[1].tolist() == [[0.45**2], [1.0]]


@BOTH
@KINDS
@pytest.mark.parametrize("control", ["sarsa", "q"])
def test_an_agent_is_the_equations_in_numpy(sparse, traces, control):
    """Every step of the agent, done again with dense matrices from the transitions that it saw."""
    agent = make(sparse, actions=3, traces=traces, control=control, trace_decay=0.7)
    seen = play(agent, 35, 1, sparse)
    following = [t.a for t in seen[1:]]
    W, E = np.zeros((agent.encoder.D, 3)), np.zeros((agent.encoder.D, 3))
    for k, t in enumerate(seen):
        if k % 7 == 0:
            E[:] = 0
        phi, psi = agent.encoder(np.stack([t.s, t.s_next]))
        q = psi @ W
        a = following[k] if t.discount else 0
        delta = t.r + t.discount * (q.max() if control == "q" else q[a]) - phi @ W[:, t.a]
        cut = control == "q" and t.discount and q[a] < q.max() - 1e-6
        W, E = trace_step(W, E, phi, t.a, 0.5 * delta, 0.0 if cut else t.discount * 0.7, traces == "replacing")
        if sparse:  # lists forget what has faded
            E[np.abs(E) <= kernels.FORGOTTEN * phi.max()] = 0
    assert np.abs(W).max() > 0.1
    assert pytest.approx(W, abs=1e-5) == agent.W


@BOTH
def test_without_traces_sarsa_is_one_step_of_temporal_differences(sparse):
    agent = make(sparse, trace_decay=0.0, epsilon_start=0.0)
    s, s_next = states(sparse)[:2]
    a = agent.act(s)
    agent.observe(Transition(s, a, 2.0, 0.9, s_next))
    phi = agent.encoder(s[None])[0]
    assert agent.W[:, a] == pytest.approx(0.5 * 2.0 * phi, abs=1e-6)
    assert not agent.W[:, 1 - a].any()


@BOTH
def test_a_reward_moves_the_states_before_it(sparse):
    """Negative control: without traces it does not."""
    moved = {}
    for decay in (0.0, 0.9):
        agent = make(sparse, trace_decay=decay, epsilon_start=0.0)
        first, second, last = states(sparse)
        a = agent.act(first)
        agent.observe(Transition(first, a, 0.0, 0.9, second))
        agent.observe(Transition(second, agent.act(second), 1.0, 0.0, last))
        moved[decay] = agent.q(first[None])[0, a]
    assert moved[0.9] > moved[0.0] + 0.05


@BOTH
@KINDS
def test_an_agent_that_is_restored_in_the_middle_of_an_episode_goes_on_with_the_same_bits(sparse, traces):
    whole, parted, fresh = (make(sparse, traces=traces) for _ in range(3))
    for agent in (whole, parted):
        for k in range(10):
            s = states(sparse)[k % 3]
            agent.observe(Transition(s, agent.act(s), 1.0, 0.9, states(sparse)[(k + 1) % 3]))
    fresh.restore(parted.state())
    for agent in (whole, fresh):
        for k in range(10, 30):
            s = states(sparse)[k % 3]
            agent.observe(Transition(s, agent.act(s), -1.0, 0.9, states(sparse)[(k + 1) % 3]))
    assert whole.W.any()
    assert same([*whole.state().values()], [*fresh.state().values()])


@BOTH
def test_another_episode_forgets_the_traces(sparse):
    """A state that is not the one that the last step led to begins another episode."""
    agent = make(sparse)
    first, second, other = states(sparse)
    agent.observe(Transition(first, agent.act(first), 1.0, 0.9, second))
    assert agent.state()["E"].any()
    agent.act(other)
    assert not agent.state()["E"].any()


def test_the_same_seed_makes_the_same_choices_and_another_one_others():
    assert live(make(seed=1), 50, 3) == live(make(seed=1), 50, 3) != live(make(seed=2), 50, 3)


@pytest.mark.parametrize("kind", [RandomFourier, ComplexFourier])
def test_dense_features_of_any_kind_learn_a_value(kind):
    """A state that pays 1 and leads to itself is worth 10 at gamma = 0.9."""
    encoder = kind.sample(2, 80, 1.0, np.random.default_rng(0))
    agent = make(encoder=encoder, eta=0.2, trace_decay=0.5, epsilon_start=0.0)
    for _ in range(3000):
        agent.observe(Transition(S[0], agent.act(S[0]), 1.0, 0.9, S[0]))
    assert agent.q(S[:1]).max() == pytest.approx(10, rel=0.02)


def test_a_sparse_step_touches_only_what_is_listed():
    """Cost: weights and traces elsewhere keep their bits."""
    agent = make(sparse=True, encoder=Triples.for_grid((10, 10, 4), 100_000, np.random.default_rng(0)))
    z = (np.random.default_rng(1).random((2, 400)) < 0.03).astype(np.float32)
    agent.W[:] = 1
    a = agent.act(z[0])
    agent.observe(Transition(z[0], a, 1.0, 0.0, z[1]))
    changed = np.argwhere(agent.W != 1)
    assert set(changed[:, 1]) == {a}
    assert sorted(changed[:, 0]) == sorted(agent.encoder.matrix(z[:1]).indices)
