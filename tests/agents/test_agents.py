"""The agents: what they learn, when, and what they hand out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from conftest import by_hand, live
from fedqhd.agents import LEARNERS, OnlineSettings
from fedqhd.agents.memory import Replay
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Transition
from fedqhd.encoders import RandomFourier

S = np.float32([[0.1, -0.3], [1.2, 0.4]])


def make(learner="replay", D=50, actions=2, seed=0, **settings):
    encoder = RandomFourier.sample(2, D, 1.0, np.random.default_rng(seed))
    return LEARNERS.find(learner)(encoder, actions, by_hand(learner, **settings), np.random.default_rng(seed))


STEPPING = pytest.mark.parametrize("learner", ["online", "replay"])


@STEPPING
@pytest.mark.parametrize(("discount", "expected"), [(0.0, 1.0), (0.9, 10.0)])
def test_truncation_bootstraps_and_termination_does_not(learner, discount, expected):
    """A state that pays 1 and leads to itself is worth 1 if it terminates and 1/(1 - 0.9) if it does not."""
    agent = make(learner, eta=0.5, batch_size=1, target_every=1)
    for _ in range(400):
        agent.observe(Transition(S[0], 1, 1.0, discount, S[0]))
        agent.end_episode()
    assert agent.q(S[:1])[0, 1] == pytest.approx(expected, rel=1e-3)


def test_target_is_delayed_for_target_every_episodes():
    agent = make(batch_size=1, target_every=3)
    for episode in range(1, 7):
        agent.observe(Transition(S[0], 0, 1.0, 0.9, S[1]))
        agent.end_episode()
        assert np.array_equal(agent.W_target, agent.W) == (episode % 3 == 0)


def test_epsilon_is_geometric_with_a_floor():
    agent = make(epsilon_start=1.0, epsilon_decay=0.5, epsilon_end=0.2)
    seen = []
    for _ in range(4):
        seen.append(agent.epsilon)
        agent.end_episode()
    assert seen == [1.0, 0.5, 0.25, 0.2]


def test_untrained_agent_plays_every_action_when_greedy():
    """W starts at 0: argmax alone would play action 0 for ever."""
    agent = make(actions=3)
    agent.epsilon = 0.0
    counts = np.bincount([agent.act(S[0]) for _ in range(3000)], minlength=3)
    # Binomial(3000, 1/3): standard deviation 26; five of them.
    assert np.all(np.abs(counts - 1000) < 130)


def test_exploration_is_uniform_over_actions():
    agent = make(actions=4)
    agent.W[:, 2] = 1.0 / agent.encoder(S[:1])[0].sum()
    agent.epsilon = 0.4
    counts = np.bincount([agent.act(S[0]) for _ in range(5000)], minlength=4) / 5000
    # 0.4/4 each, and 0.6 more for the greedy one; standard deviation 0.007 at most.
    np.testing.assert_allclose(counts, [0.1, 0.1, 0.7, 0.1], atol=0.035)


def test_update_every():
    agent = make(batch_size=1, update_every=3)
    changed = []
    for _ in range(6):
        before = agent.W.copy()
        agent.observe(Transition(S[0], 0, 1.0, 0.9, S[1]))
        changed.append(not np.array_equal(agent.W, before))
    assert changed == [False, False, True, False, False, True]


def test_params_are_copies_and_load_sets_both_weights():
    agent, other = make(), make()
    W = np.random.default_rng(1).normal(size=agent.W.shape).astype(np.float32)
    agent.load({"W": W})
    np.testing.assert_array_equal(agent.W_target, W)
    agent.params()["W"][:] = 0
    np.testing.assert_array_equal(agent.W, W)
    other.load(agent.params())
    np.testing.assert_array_equal(other.q(S), agent.q(S))


def test_weights_that_do_not_fit_or_are_not_finite_are_refused():
    agent = make(D=50)
    with pytest.raises(FedQHDError, match=r"\(7, 2\).*\(50, 2\)"):
        agent.load({"W": np.zeros((7, 2))})
    with pytest.raises(FedQHDError, match="not finite"):
        agent.load({"W": np.full((50, 2), np.nan)})
    assert np.all(agent.W == 0)


@STEPPING
def test_divergence_is_noticed(learner):
    agent = make(learner, eta=1e30, batch_size=1)

    def learn():
        for _ in range(10):
            agent.act(S[0])
            agent.observe(Transition(S[0], 0, 1.0, 0.9, S[1]))

    with pytest.raises(FedQHDError, match="eta=1e"):
        learn()


@pytest.mark.parametrize(
    ("learner", "features"),
    [
        *((learner, "recompute") for learner in ("least-squares", "online", "replay")),
        ("replay", "float32"),
        ("replay", "int8"),
    ],
)
def test_state_restores_the_same_future(learner, features, rng):
    """After restore, everything that follows is the same to the bit."""
    agent = make(learner, batch_size=4, features=features)
    live(agent, 33, 1)
    copy = make(learner, batch_size=4, features=features)
    copy.restore(agent.state())
    assert live(agent, 40, 2) == live(copy, 40, 2)
    np.testing.assert_array_equal(agent.W, copy.W)
    assert agent.epsilon == copy.epsilon


def test_replay_overwrites_the_oldest():
    memory = Replay(3, 2)
    for k in range(5):
        memory.add(Transition(S[0] + k, k, float(k), 0.9, S[1]))
    assert sorted(memory.a.tolist()) == [2, 3, 4]
    assert memory.size == 3
    rows = memory.sample(1000, np.random.default_rng(0))
    assert set(memory.a[rows].tolist()) == {2, 3, 4}
    copy = Replay(3, 2)
    copy.restore(memory.state())
    copy.add(Transition(S[0], 9, 0.0, 0.9, S[1]))
    assert sorted(copy.a.tolist()) == [3, 4, 9]


@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
def test_rows_are_joined_where_one_goes_on_from_the_other(capacity, rng):
    memory, s = Replay(capacity, 2), S[0]
    for k in range(40):
        s_next = rng.normal(size=2).astype(np.float32)
        row = memory.add(Transition(s, k, 0.0, 0.9, s_next))
        s = rng.normal(size=2).astype(np.float32) if rng.random() < 0.3 else s_next
        after = (np.arange(memory.size) + 1) % capacity
        goes_on = (memory.s_next[: memory.size] == memory.s[after]).all(axis=1)
        goes_on[row] = False  # nothing came after it yet
        np.testing.assert_array_equal(memory.joined[: memory.size], goes_on)
        again = Replay(capacity, 2)
        again.restore(memory.state())
        np.testing.assert_array_equal(again.joined, memory.joined)


@pytest.mark.parametrize("mode", ["overwrite", "warm-start"])
def test_compile_fits_the_teacher(mode, rng):
    agent = make(D=300, compile=mode, lam=1e-6)
    agent.load({"W": rng.normal(size=agent.W.shape).astype(np.float32)})
    anchors = rng.normal(size=(20, 2)).astype(np.float32)
    Q = rng.normal(size=(20, 2))
    before = agent.W.copy()
    agent.fit_anchors(anchors, Q)
    # lam=1e-6 against the smallest Gram eigenvalues of 20 random states leaves some misfit.
    assert np.abs(agent.q(anchors) - Q).max() < 0.3 * np.abs(Q).max()
    X = agent.encoder(anchors)
    outside = np.eye(300) - np.linalg.pinv(X) @ X
    kept = np.linalg.norm(outside @ agent.W) / np.linalg.norm(outside @ before)
    # What the anchors do not see is kept by warm-start and lost by overwrite.
    assert kept == pytest.approx(1.0 if mode == "warm-start" else 0.0, abs=1e-3)


def test_anchors_are_factorised_once(monkeypatch, rng):
    from fedqhd.agents import qhd

    made = []
    original = qhd.Ridge
    monkeypatch.setattr(qhd, "Ridge", lambda X, lam: made.append(1) or original(X, lam))
    agent = make()
    anchors = rng.normal(size=(20, 2)).astype(np.float32)
    for _ in range(5):
        agent.fit_anchors(anchors, rng.normal(size=(20, 2)))
    assert len(made) == 1
    agent.fit_anchors(anchors.copy(), rng.normal(size=(20, 2)))
    assert len(made) == 1
    anchors[3, 1] += 1
    agent.fit_anchors(anchors, rng.normal(size=(20, 2)))
    assert len(made) == 2


def test_warm_start_leaves_a_perfect_student_alone(rng):
    agent = make(D=100)
    agent.load({"W": rng.normal(size=agent.W.shape).astype(np.float32)})
    anchors = rng.normal(size=(20, 2)).astype(np.float32)
    before = agent.W.copy()
    agent.fit_anchors(anchors, agent.q(anchors))
    np.testing.assert_array_equal(agent.W, before)


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        OnlineSettings().eta = 1.0  # type: ignore[misc]


def test_learners_differ_in_what_they_keep():
    assert "memory.s" in make("replay").state()
    assert set(make("online").state()) == {"W", "epsilon", "episodes", "updates", "rng"}


def test_a_memory_saves_only_what_it_cannot_derive():
    """Per transition of two state variables: 8 bytes of state, 4 and 4 of reward and discount, action and flag."""
    for learner, most in (("replay", 8 + 4 + 4 + 1 + 1), ("least-squares", 8 + 4 + 4 + 2 + 1)):
        agent = make(learner, D=200, features="int8", batch_size=4)
        s = S[0]
        for k in range(100):
            agent.observe(Transition(s, k % 2, 0.5, 0.9, S[k % 2]))
            s = S[k % 2]
        saved = {k: v for k, v in agent.state().items() if k.startswith("memory.")}
        assert sum(v.nbytes for v in saved.values()) <= 101 * most + 24, saved.keys()
