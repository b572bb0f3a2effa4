"""Least-squares learning: the equations, the memory they are made of, and the agent that solves them."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from conftest import DENSE, by_hand, tiny
from fedqhd import kernels
from fedqhd.agents import LeastSquaresQHD
from fedqhd.agents.learners import least_squares
from fedqhd.agents.memory import Trajectories
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Reply, Transition
from fedqhd.encoders import ENCODERS, RandomFourier
from fedqhd.federation import NormalExchange, PrecisionCompile
from fedqhd.linalg.normal import (
    BLOCK,
    ConjugateGradients,
    Factors,
    NormalEquations,
    add_grams,
    leave_one_out,
    symmetrised,
)
from fedqhd.linalg.real_rows import real_view
from fedqhd.runs import limits
from fedqhd.runs.run import train
from worlds import CORRIDOR

S = np.float32([[0.1, -0.3], [1.2, 0.4]])


def data(rng, rows=300, p=20, actions=3):
    return rng.normal(size=(rows, p)), rng.integers(-1, actions, rows)


def make(encoder=None, actions=2, seed=0, **settings):
    encoder = encoder or RandomFourier.sample(2, 60, 1.0, np.random.default_rng(5))
    return LeastSquaresQHD(encoder, actions, by_hand("least-squares", **settings), np.random.default_rng(seed))


def wander(agent, episodes, seed, length=30):
    """Random walks in the plane, cut off or terminated; reward by where one is. Nothing is fitted on the way."""
    world = np.random.default_rng(seed)
    for _ in range(episodes):
        s = world.normal(size=2).astype(np.float32)
        for k in range(length):
            a = int(world.integers(agent.W.shape[1]))
            s_next = (s + (0.3 if a else -0.3) * np.abs(world.normal(size=2))).astype(np.float32)
            agent.observe(
                Transition(s, a, float(np.cos(s).sum()), 0.9 if k < length - 1 or world.random() < 0.5 else 0, s_next)
            )
            s = s_next
        agent._close()


def test_normal_equations_are_those_of_each_actions_rows(rng):
    X, a = data(rng)
    G = add_grams(np.zeros((3, 20, 20)), X, a)
    for k in range(3):
        np.testing.assert_allclose(symmetrised(G)[k], X[a == k].T @ X[a == k], atol=1e-10)


def test_normal_equations_depend_on_the_rows_alone_to_the_bit(rng):
    """However often they were asked for on the way."""
    X, a = data(rng, rows=2 * BLOCK + 77)
    often, once = NormalEquations(3, 20), NormalEquations(3, 20)
    for rows in (5, BLOCK - 9, BLOCK, BLOCK + 1, 2 * BLOCK + 3, len(X)):
        last = often.absorb(X[:rows], a[:rows])
    np.testing.assert_array_equal(last, once.absorb(X, a))
    np.testing.assert_allclose(last, add_grams(np.zeros((3, 20, 20)), X, a), rtol=1e-12, atol=1e-9)


def test_factors_solve_each_action_by_its_own_matrix(rng):
    X, a = data(rng)
    G, B = symmetrised(add_grams(np.zeros((3, 20, 20)), X, a)), rng.normal(size=(20, 3))
    solved = Factors(G.copy(), 0.7).solve(B)
    for k in range(3):
        np.testing.assert_allclose((G[k] + 0.7 * np.eye(20)) @ solved[:, k], B[:, k], atol=1e-9)


def test_no_ridge_needs_data_of_full_rank(rng):
    X, a = data(rng)
    Factors(add_grams(np.zeros((3, 20, 20)), X, a), 0.0)
    with pytest.raises(np.linalg.LinAlgError):
        Factors(add_grams(np.zeros((3, 20, 20)), X[:30], a[:30]), 0.0)


def test_conjugate_gradients_reach_the_same_solution(rng):
    X, a = data(rng)
    B = rng.normal(size=(20, 3))
    G = symmetrised(add_grams(np.zeros((3, 20, 20)), X, a))

    def times(P):
        return np.stack([G[k] @ P[:, k] for k in range(3)], axis=1)

    exact = Factors(G.copy(), 0.7).solve(B)
    np.testing.assert_allclose(ConjugateGradients(times, (20, 3), 0.7, 60).solve(B), exact, rtol=1e-8)
    few = ConjugateGradients(times, (20, 3), 0.7, 6)
    errors = [np.abs(few.solve(B) - exact).max() for _ in range(4)]
    assert errors[-1] < errors[1] < errors[0]  # each solve goes on from the last


def test_leave_one_out_is_what_leaving_one_out_gives(rng):
    X, y, lams = rng.normal(size=(40, 8)), rng.normal(size=40), np.array([0.1, 3.0])
    fast = leave_one_out(X.T @ X, X.T @ y, X, y, lams)
    for lam, got in zip(lams, fast, strict=True):
        slow = []
        for i in range(40):
            rest = np.delete(np.arange(40), i)
            w = np.linalg.solve(X[rest].T @ X[rest] + lam * np.eye(8), X[rest].T @ y[rest])
            slow.append((y[i] - X[i] @ w) ** 2)
        assert got == pytest.approx(np.mean(slow), rel=1e-8)


@pytest.mark.parametrize("visits", [0, 1, 10])
def test_uncertainty_by_hand(visits):
    """k visits to one state leave lam / (lam + k |phi|^2); a state at right angles to it stays at 1."""
    phi, other = np.array([3.0, 4.0]), np.array([4.0, -3.0])
    u = Factors(visits * np.outer(phi, phi)[None], 2.0).uncertainty(np.stack([phi, other]))
    np.testing.assert_allclose(u[:, 0], [2 / (2 + 25 * visits), 1.0])


def test_uncertainty_of_different_encoders_can_be_compared(rng):
    """The same data in 300 and 3,000 dimensions tells of the same certainty (as D grows)."""
    states, queries = rng.normal(size=(50, 2)), rng.normal(size=(40, 2)) * 1.5
    found = []
    for D in (300, 3000):
        X = RandomFourier.sample(2, D, 1.0, rng)
        found.append(
            Factors(add_grams(np.zeros((1, D, D)), X(states), np.zeros(50, int)), 0.1).uncertainty(X(queries))[:, 0]
        )
    assert np.all((found[0] > 0) & (found[0] <= 1 + 1e-9))
    assert np.corrcoef(found[0], found[1])[0, 1] > 0.95
    assert np.abs(found[0] - found[1]).mean() < 0.06


def test_a_sketch_tells_the_same_uncertainty(rng):
    """Exactly with all directions; with 64 random ones right on average, and to about sqrt(2 / 64) each time."""
    X, phi = rng.normal(size=(30, 20)), rng.normal(size=(1, 20))
    factors = Factors((X.T @ X)[None], 0.5)
    exact = factors.uncertainty(phi)[0, 0] * (phi @ phi.T).item() / 0.5
    assert np.sum((factors.sketch(np.eye(20)) @ phi[0]) ** 2) == pytest.approx(exact, rel=1e-9)
    draws = [np.sum((factors.sketch(rng.choice((-1, 1), (64, 20)) / 8) @ phi[0]) ** 2) / exact for _ in range(400)]
    assert np.mean(draws) == pytest.approx(1.0, abs=0.04)
    assert np.std(draws) < 0.2


@pytest.mark.parametrize("name", DENSE)
def test_an_agent_knows_how_often_it_was_in_a_state(name):
    agent = make(ENCODERS[name].sample(2, 60, 1.0, np.random.default_rng(0)), fit_lam=2.0)
    for _ in range(9):
        agent.observe(Transition(S[0], 1, 1.0, 0.0, S[1]))
    norm = float(np.sum(np.abs(agent.encoder(S[:1])) ** 2))
    np.testing.assert_allclose(agent.uncertainty(S[:1]), [[1.0, 2 / (2 + 9 * norm)]], rtol=1e-5)


def test_a_full_memory_forgets_every_second_episode():
    memory = Trajectories(12, 1)
    for episode in range(4):
        for k in range(3):
            assert not memory.add(np.zeros(1), episode, float(k), 0.9, k == 0)
    assert memory.add(np.zeros(1), 4, 0.0, 0.9, True)
    assert memory.a[: memory.size].tolist() == [1, 1, 1, 3, 3, 3, 4]  # the newest is kept, and rows stay in order
    assert memory.r[: memory.size].tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_an_episode_longer_than_the_memory_loses_its_older_half():
    memory = Trajectories(8, 1)
    for k in range(9):
        memory.add(np.zeros(1), 0, float(k), 0.9, k == 0)
    assert memory.r[: memory.size].tolist() == [4, 5, 6, 7, 8]
    assert memory.first[: memory.size].tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(("discount", "expected"), [(0.0, 1.0), (0.9, 10.0)])
@pytest.mark.parametrize("name", DENSE)
def test_truncation_bootstraps_and_termination_does_not(name, discount, expected):
    """A state that pays 1 and leads to itself is worth 1 if it terminates and 1/(1 - 0.9) if it does not."""
    agent = make(ENCODERS[name].sample(2, 60, 1.0, np.random.default_rng(0)), fit_lam=1e-3, clip="off")
    for _ in range(20):
        agent.observe(Transition(S[0], 1, 1.0, discount, S[0]))
    agent._close()
    agent.fit(200)
    assert agent.q(S[:1])[0, 1] == pytest.approx(expected, rel=5e-3)
    assert agent.q(S[:1])[0, 0] == 0  # never tried: as it was


def test_targets_stay_in_the_range_of_returns():
    agent = make()
    for r in (1.0, 0.0, 5.0):  # 1 + 0.5 (0 + 0.5 * 5) = 2.25, 2.5, 5
        agent.observe(Transition(S[0], 0, r, 0.5 if r < 5 else 0.0, S[0]))
    agent._close()
    assert (agent.low, agent.high) == (2.25, 5.0)
    # An episode cut off goes on by the present estimate: W = 0 says 0.
    agent.observe(Transition(S[0], 0, -1.0, 0.5, S[1]))
    agent._close()
    assert (agent.low, agent.high) == (-1.0, 5.0)


def test_an_oracles_environments_are_told_apart():
    """Episodes of several environments follow each other with no end_episode between: each leaves its last state."""
    agent = make()
    for start in (0.0, 1.0):
        for k in range(2):
            s = np.float32([start, k])
            agent.observe(Transition(s, 0, 0.0, 0.9, s + np.float32([0, 1])))
    agent._close()
    assert agent.memory.a[: agent.memory.size].tolist() == [0, 0, -1, 0, 0, -1]
    np.testing.assert_array_equal(agent.memory.s[: agent.memory.size, 1], [0, 1, 2, 0, 1, 2])


def test_statistics_in_the_middle_of_an_episode_are_those_of_one_that_is_cut_off_there():
    """A report does not change the memory, whether or not there is room for the state after the last transition."""
    for size in (20, 8):  # with the open episode's 7 rows, a memory of 8 rows is full after one more
        going_on, cut_off, unasked = (make(replay_size=size, exchange="statistics") for _ in range(3))
        for agent in (going_on, cut_off, unasked):
            wander(agent, 1, seed=3, length=1)
            for k in range(6):
                s = np.float32([0.1 * k, 1.0])
                agent.observe(Transition(s, k % 2, 1.0, 0.9, s + np.float32([0.1, 0.0])))
        cut_off._close()
        for one, other in zip(going_on.statistics(), cut_off.statistics(), strict=True):
            np.testing.assert_array_equal(one, other)
        assert (going_on.low, going_on.high) == (cut_off.low, cut_off.high)
        for agent in (going_on, unasked):
            agent.observe(Transition(np.float32([0.6, 1.0]), 0, 1.0, 0.0, S[0]))
            agent.end_episode()
        rows = [agent.memory.a[: agent.memory.size].tolist() for agent in (going_on, unasked)]
        assert rows[0] == rows[1]
        for one, other in zip(going_on.statistics(), unasked.statistics(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_sweep_is_the_equation(rng):
    """One sweep with rho = 1 is V + the ridge solution of y - X V, each action by its own rows."""
    agent = make(damping=1.0, fit_lam=0.5, clip="off")
    wander(agent, 10, 1)
    agent.W[:] = rng.normal(size=agent.W.shape)
    agent.sync_target()
    agent.V += 0.1
    m, (X, a) = agent.memory, agent.rows()
    V, q = agent.V.copy(), X @ agent.W
    y = m.r[: m.size] + m.discount[: m.size] * np.append(q[1:].max(axis=1), 0)
    expected = V.copy()
    for k in range(2):
        A = X[a == k].astype(float)
        expected[:, k] += np.linalg.solve(A.T @ A + 0.5 * np.eye(60), A.T @ (y[a == k] - A @ V[:, k]))
    agent.fit(1)
    np.testing.assert_allclose(agent.W, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (0.0, [1 + 0.5 * 7, 2 + 0.5 * 9, 4.0]),  # one step, then the best value there
        (1.0, [1 + 0.5 * (2 + 0.5 * 4), 2 + 0.5 * 4, 4.0]),  # the return that followed
        (0.5, [1 + 0.5 * (7 + 5.25) / 2, 2 + 0.5 * (9 + 4) / 2, 4.0]),
    ],
)
def test_targets_by_hand(trace, expected):
    """Rewards 1, 2, 4 to an end, best values 5, 7, 9 on the way; two more steps, cut off where the best value is 6."""
    Q = np.array([[5, 0], [0, 7], [9, 1], [3, 2], [2, 3], [6, 1]], np.float32)
    r = np.float32([1, 2, 4, 1, 1, 0])
    discount = np.float32([0.5, 0.5, 0, 0.5, 0.5, 0])
    a = np.array([0, 0, 0, 1, 1, -1])
    y, residual = np.zeros(6, np.float32), np.full(6, np.nan, np.float32)
    value, squares = kernels.bellman(r, discount, a, Q, 0 * Q, trace, False, -np.inf, np.inf, 0.0, y, residual)
    fifth = 1 + 0.5 * 6
    np.testing.assert_allclose(y[:5], [*expected, 1 + 0.5 * ((1 - trace) * 3 + trace * fifth), fifth])
    np.testing.assert_array_equal(residual, [*y[:5], 0])
    assert value == pytest.approx((1 - trace) * 5 + trace * y[0])
    assert squares == pytest.approx(np.sum((y[:5] - Q[np.arange(5), a[:5]]) ** 2))
    kernels.bellman(r, discount, a, Q, 0 * Q, trace, False, 2.0, 3.0, 0.0, y, residual)
    assert y[:5].min() >= 2
    assert y[:5].max() <= 3


def test_double_q_listens_to_the_lower_of_two():
    """W likes action 0 (5 against 1). V says 3 of it, and 9 of the action that W would not take."""
    Q, r, discount, a = np.float32([[0, 0], [5, 1]]), np.float32([1, 0]), np.float32([0.5, 0]), np.array([0, -1])
    y, residual = np.zeros(2, np.float32), np.zeros(2, np.float32)
    for Q_V, best in ([[0, 0], [3, 9]], 3), ([[0, 0], [7, 9]], 5):
        kernels.bellman(r, discount, a, Q, np.float32(Q_V), 0.0, True, -np.inf, np.inf, 0.0, y, residual)
        assert y[0] == 1 + 0.5 * best


def test_targets_do_not_depend_on_the_blocks(rng, monkeypatch):
    agent = make(trace=0.7)
    wander(agent, 10, 1)
    W, V = rng.normal(size=(2, 60, 2))
    whole = agent.targets(W, agent.values(V))
    monkeypatch.setattr(least_squares, "SWEEP", 7)
    for one, other in zip(whole, agent.targets(W, agent.values(V)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def double(agent):
    """Features 1 -> 2 and no other data: each sweep doubles W (Tsitsiklis and Van Roy's example)."""
    one = np.zeros(60, np.float32)
    one[0] = 1.0
    for _ in range(100):
        for x, transition in (one, (S[0], 0, 0.0, 0.99, True)), (2 * one, (S[1], -1, 0.0, 0.0, False)):
            agent.memory.add(*transition)
            agent.memory.X[agent.memory.size - 1] = x
    agent.W[0] = 1.0


def test_a_fit_that_leads_away_is_undone_and_said(caplog):
    agent = make(clip="off", damping=1.0, fit_lam=1e-3)
    double(agent)
    before = agent.W.copy()
    with caplog.at_level(logging.WARNING):
        agent.fit(20)
    np.testing.assert_array_equal(agent.W, before)
    assert agent.alarms == 1
    assert "was undone" in caplog.text
    # With targets in the range of what was met it cannot run away.
    clipped = make(damping=1.0, fit_lam=1e-3)
    clipped.memory, clipped.low, clipped.high = agent.memory, -1.0, 1.0
    clipped.W[0] = 1.0
    clipped.fit(20)
    assert clipped.alarms == 0
    assert abs(clipped.W[0, 0]) <= 1.0


def test_a_fit_ends_when_its_error_no_longer_changes():
    """With trace 0.9, targets are mostly returns, and the values have settled when the error has: to a hundredth of the
    range of returns when it changes by less than a 10,000th of itself. One-step targets creep on while the error stays
    about the same, so that an early end is another learner there."""

    def fitted(tol, trace):
        agent = make(damping=1.0, fit_lam=0.5, trace=trace, sweep_tol=tol)
        wander(agent, 20, 1)
        agent.fit(200)
        return agent

    every, some, few = (fitted(tol, trace=0.9) for tol in (0.0, 1e-4, 0.5))

    def apart(agent, other):
        return np.abs(agent.q(S) - other.q(S)).max() / (every.high - every.low)

    assert every.updates == 200
    assert few.updates < some.updates < 50
    assert 0 < apart(some, every) < 0.01 < 0.1 < apart(few, every)
    assert apart(fitted(1e-3, trace=0.0), fitted(0.0, trace=0.0)) > 0.1


def test_a_fit_whose_error_grows_does_not_end_early():
    """Else each fit would let it grow by less than what raises the alarm."""
    agent = make(clip="off", damping=1.0, fit_lam=1e-3, sweep_tol=0.01)
    double(agent)
    agent.fit(20)
    assert agent.alarms == 1
    assert agent.updates == 20


def test_an_agent_with_early_fits_goes_on_to_the_bit():
    """From its state alone, whatever its matrices had already summed up."""
    whole, cut, other = (make(fit_lam=0.5, features="int8", sweep_tol=1e-3, seed=k) for k in (0, 0, 7))
    for agent in (whole, cut):
        wander(agent, 10, 1)
        agent.fit(10)
    other.restore(cut.state())
    for agent in (whole, other):
        wander(agent, 10, 2)
        agent.fit(10)
    np.testing.assert_array_equal(whole.W, other.W)
    assert (whole.updates, whole.rho) == (other.updates, other.rho)
    assert not np.array_equal(whole.W, cut.W)


@pytest.mark.parametrize("name", DENSE)
def test_one_exchange_of_statistics_is_the_pooled_sweep(name):
    """Three clients that share normal equations do what one client with all their data does."""
    encoder = ENCODERS[name].sample(2, 40, 1.0, np.random.default_rng(3))
    settings = {"exchange": "statistics", "damping": 0.4, "fit_lam": 0.2, "trace": 0.5}
    clients, pooled = [make(encoder, **settings) for _ in range(3)], make(encoder, **settings)
    for i, client in enumerate(clients):
        wander(client, 4 + i, seed=i)
        wander(pooled, 4 + i, seed=i)
    for agent in (*clients, pooled):
        real_view(agent.W)[:] = np.random.default_rng(9).normal(size=real_view(agent.W).shape)
        agent.sync_target()
        agent.low, agent.high = pooled.low, pooled.high
    exchange = NormalExchange(0.2, 0.4)

    def sweep(agents):
        sites = [type("Site", (), {"agent": agent}) for agent in agents]
        replies = [Reply(i, exchange.report(s, None), 1.0, 1, (), "", {}) for i, s in enumerate(sites)]
        return exchange.aggregate({}, replies)[1]["W"]

    federated = sweep(clients)
    np.testing.assert_allclose(federated, sweep([pooled]), rtol=1e-8, atol=1e-8)
    pooled.fit(1)
    np.testing.assert_allclose(federated, pooled.W, rtol=1e-5, atol=1e-6)  # the same, rounded to W's single precision
    assert np.abs(federated - clients[0].W).max() > 1e-3


def test_the_teacher_listens_to_those_who_know():
    """Golden: values 1 and 4 with uncertainties 0.1 and 0.4 give (1 / 0.1 + 4 / 0.4) / (1 / 0.1 + 1 / 0.4) = 1.6."""
    teacher = PrecisionCompile(np.zeros((1, 2)))
    replies = []
    for i, (q, u) in enumerate([(1.0, 0.1), (4.0, 0.4)]):
        agent = type(
            "Agent", (), {"q": lambda _, s, q=q: np.array([[q]]), "uncertainty": lambda _, s, u=u: np.array([[u]])}
        )()
        replies.append(Reply(i, teacher.report(type("Site", (), {"agent": agent}), None), 1.0, 1, (), "", {}))
    assert teacher.aggregate({}, replies)[1]["Q"] == pytest.approx(1.6)


def test_optimism_tries_what_is_not_known():
    agent = make(explore="bonus", bonus=3.0)
    for k in range(60):
        agent.observe(Transition(S[0], 0, 1.0 + k % 2, 0.0, S[1]))
    agent.end_episode()
    assert agent.q(S[:1])[0, 0] > 1
    assert {agent.act(S[0]) for _ in range(20)} == {1}
    plain = make(explore="bonus", bonus=0.0)
    plain.restore(agent.state())
    assert {plain.act(S[0]) for _ in range(20)} == {0}


@pytest.mark.parametrize("options", [{"explore": "bonus"}, {"ridge": "leave-one-out"}, {"replay_size": 50}])
def test_options_restore_the_same_future(options):
    agents = [make(**options), make(**options)]
    wander(agents[0], 3, 1)
    agents[0].end_episode()
    agents[1].restore(agents[0].state())
    for agent in agents:
        wander(agent, 3, 2)
        agent.end_episode()
    np.testing.assert_array_equal(agents[0].W, agents[1].W)
    assert agents[0].act(S[0]) == agents[1].act(S[0])


def test_a_memory_that_does_not_fit_is_refused_with_the_dimension_that_would(tmp_path, monkeypatch):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 99999 kB\nMemAvailable: 1000 kB\n")
    monkeypatch.setattr(limits, "MEMINFO", meminfo)
    wanted = {
        "learner": "least-squares",
        "features": "float32",
        "dims": [100],
        "replay_size": 2000,
        "rollout_steps": 100,
    }
    # Two clients with two actions: 2 (4 * 2000 D + 2 * 2 * 4 D^2) = 16000 D + 32 D^2 bytes, 1.92 MB for D = 100. States
    # of four variables and the encoder add 2 (4 * 4 * 2000 + 4 * 4 D), and 100 random steps and what is drawn of them
    # 8 * 4 * 4 * 100 + 4 * 4 (500 + 2000).
    with pytest.raises(FedQHDError, match=r"need 0\.002 GB .* dimensions up to 51 fit"):
        train(tiny(tmp_path / "run", setting="homogeneous", **wanted))
    assert not (tmp_path / "run").exists()
    train(tiny(tmp_path / "run", **wanted | {"dims": [51]}))


@pytest.mark.parametrize("option", [{"weights": "precision"}, {"explore": "bonus"}, {"exchange": "statistics"}])
def test_certainty_in_too_many_dimensions_is_refused(tmp_path, option):
    with pytest.raises(FedQHDError, match=r"needs D x D matrices, but dims=\[5000\] has more than 4096"):
        train(tiny(tmp_path / "run", learner="least-squares", setting="homogeneous", dims=[5000], **option))


def test_many_dimensions_are_solved_by_conjugate_gradients(monkeypatch):
    """Past the limit nothing of size D x D is kept, and the values are those of the exact solution."""
    exact = make(fit_lam=0.5)
    monkeypatch.setattr(least_squares, "DENSE", 50)
    monkeypatch.setattr(least_squares, "CG_STEPS", 80)
    matrix_free = make(fit_lam=0.5)
    for agent in (exact, matrix_free):
        wander(agent, 20, 1)
        agent.fit(30)
    assert matrix_free.normal.G.size == 0
    np.testing.assert_allclose(matrix_free.q(S), exact.q(S), rtol=1e-2)


def test_rounded_features_fit_the_same_values():
    """int8: four times less memory. Its error is that of rounding, a part in 254, not of the method."""
    exact, rounded = make(fit_lam=0.5), make(fit_lam=0.5, features="int8")
    for agent in (exact, rounded):
        wander(agent, 20, 1)
        agent.fit(30)
    assert rounded.memory.X.dtype == np.int8
    apart = np.abs(rounded.q(S) - exact.q(S)).max()
    assert 0 < apart < 0.01 * np.ptp(exact.q(S))
    restored = make(fit_lam=0.5, features="int8", seed=7)
    restored.restore(rounded.state())
    np.testing.assert_array_equal(restored.rows()[0], rounded.rows()[0])


def test_conjugate_gradients_take_rounded_features_too(monkeypatch):
    exact = make(fit_lam=0.5, features="int8")
    monkeypatch.setattr(least_squares, "DENSE", 50)
    monkeypatch.setattr(least_squares, "CG_STEPS", 80)
    matrix_free = make(fit_lam=0.5, features="int8")
    for agent in (exact, matrix_free):
        wander(agent, 20, 1)
        agent.fit(30)
    np.testing.assert_allclose(matrix_free.q(S), exact.q(S), rtol=1e-2)


def test_no_ridge_and_too_few_data_is_said():
    agent = make(fit_lam=0.0)
    wander(agent, 1, 1)
    with pytest.raises(FedQHDError, match=r"fit_lam=0 is too small: the 3[01] transitions do not span D=60"):
        agent.fit(1)


@pytest.mark.parametrize(
    "options",
    [{"exchange": "statistics", "round_episodes": 1}, {"weights": "precision"}, {"explore": "bonus"},
     {"ridge": "leave-one-out"}, {"setting": "heterogeneous", "weights": "precision"}],
    ids=lambda o: "-".join(map(str, o.values())),
)  # fmt: skip
def test_options_learn_a_corridor_in_seconds(tmp_path, options):
    summary = train(
        tiny(tmp_path, env=CORRIDOR, clients=3, learner="least-squares", sigma=0.5, epsilon_decay=0.9, eval_episodes=20,
             **{"episodes": 60, "round_episodes": 10, "setting": "homogeneous"} | options)
    )  # fmt: skip
    # Optimal play ends with 0.5 on the average; standing still ends with -2.
    assert summary["greedy_return"] > 0.35
    assert summary["fit_alarms"] == 0
