"""The fused loops against plain numpy, for every encoder."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from numba import njit

from conftest import DENSE, by_hand
from fedqhd import kernels
from fedqhd.agents import OnlineQHD, ReplayQHD
from fedqhd.agents.td import double_q_target, q_values, semi_gradient, td_error
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Transition
from fedqhd.encoders import ENCODERS
from fedqhd.kernels.integers import rounded_weights, row_products
from fedqhd.linalg.real_rows import real_view

# Kernels work in float32: phases of a few turns carry errors of 1e-6, and sums of R products
# of features and weights of order one grow them to about 1e-5.
CLOSE = {"atol": 3e-5, "rtol": 1e-4}
SETTINGS = by_hand("replay", batch_size=8, eta=0.2)


def random_weights(encoder, actions, rng):
    W = rng.normal(size=(encoder.D, actions))
    return W + 1j * rng.normal(size=W.shape) if np.issubdtype(encoder.dtype, np.complexfloating) else W


def agent_with_weights(cls, encoder, rng, actions=3, settings=SETTINGS):
    agent = cls(encoder, actions, settings, np.random.default_rng(0))
    agent.load({"W": random_weights(encoder, actions, rng).astype(encoder.dtype)})
    return agent


@pytest.fixture(params=DENSE)
def wide(request, rng):
    """Wider than a block of any kernel, and not a multiple of it."""
    return ENCODERS[request.param].sample(5, max(kernels.BLOCK, kernels.STORED_BLOCK) + 100, 1.3, rng)


def test_the_double_precision_cosine_is_numpys(rng):
    turns = np.concatenate([rng.normal(0.0, 100.0, 4000), np.arange(-8, 9) / 8]).reshape(-1, 3)
    found = turns.copy()
    kernels.cosines(found, 0.5)
    whole = turns - np.rint(turns)  # numpy's own error grows with its argument
    np.testing.assert_allclose(found, 0.5 * np.cos(2 * np.pi * whole), atol=4e-16)
    broken = np.array([np.nan, np.inf])
    kernels.cosines(broken, 1.0)
    assert np.isnan(broken).all()


@pytest.mark.parametrize("name", ["fourier", "complex"])
def test_encoders_are_their_formulas(name, rng):
    encoder = ENCODERS[name].sample(3, 40, 0.7, rng)
    s = rng.normal(size=(6, 3))
    arrays = {key: array.astype(float) for key, array in encoder.arrays.items()}
    phase = 2 * np.pi * (s @ arrays["Omega"])
    plain = np.cos(phase + 2 * np.pi * arrays["b"]) if name == "fourier" else np.exp(-1j * phase)
    np.testing.assert_allclose(encoder(s), plain / np.sqrt(40), atol=1e-14)


def test_cosine_is_accurate():
    t = np.linspace(-20, 20, 100_001, dtype=np.float32)
    encoder_args = (kernels.FOURIER, np.ones((1, 1), np.float32), np.zeros(1, np.float32), np.zeros((0, 0, 0), np.int8))
    Q = np.empty((len(t), 1), np.float32)
    kernels.q_batch(*encoder_args, t[:, None], np.ones((1, 1), np.float32), np.empty(1, np.float32), Q)
    # The polynomial is good to 3.4e-9; what remains is float32 arithmetic, 2^-24 and a few roundings.
    np.testing.assert_allclose(Q[:, 0], np.cos(2 * np.pi * t.astype(float)), atol=5e-7)


def test_q_batch_equals_reference(wide, rng):
    W = np.asfortranarray(random_weights(wide, 3, rng).astype(wide.dtype))
    s = rng.uniform(-3, 3, (17, 5)).astype(np.float32)
    rows = real_view(W)
    Q = np.empty((17, 3), np.float32)
    kernels.q_batch(*wide.kernel_args(), s, rows, np.empty(rows.shape[1], np.float32), Q)
    np.testing.assert_allclose(Q, q_values(wide(s), W), **CLOSE)


def test_features_equal_reference(wide, rng):
    s = rng.uniform(-3, 3, (17, 5)).astype(np.float32)
    X = wide(s)  # rows are Phi^H
    np.testing.assert_allclose(wide.features(s), X.conj().view(np.float64), atol=1e-6)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("n", [1, 4, 8, 9, 17])
def test_features_of_few_and_many_variables(name, n, rng):
    """Four states at a time, eight variables at a time, and what is left over of both."""
    encoder = ENCODERS[name].sample(n, 70, 1.3 * n, rng)
    s = rng.uniform(-3, 3, (11, n)).astype(np.float32)
    X = encoder.features(s)
    np.testing.assert_allclose(X, encoder(s).conj().view(np.float64), atol=3e-6)
    np.testing.assert_allclose(X, np.vstack([encoder.features(z[None]) for z in s]), atol=1e-7)


def test_act_is_greedy_on_the_reference(wide, rng):
    agent = agent_with_weights(OnlineQHD, wide, rng)
    agent.epsilon = 0.0
    for s in rng.uniform(-3, 3, (50, 5)).astype(np.float32):
        q = agent.q(s[None])[0]
        assert q.max() - q[agent.act(s)] < 1e-4


def test_online_step_equals_reference(wide, rng):
    agent = agent_with_weights(OnlineQHD, wide, rng)
    s, s_next = rng.uniform(-2, 2, (2, 1, 5)).astype(np.float32)
    W = agent.W.copy()
    X, X_next = wide(s), wide(s_next)
    q_next = q_values(X_next, W)
    y = double_q_target(np.array([0.7]), np.array([0.9]), q_next, q_next)
    expected = semi_gradient(W, X, np.array([2]), td_error(y, q_values(X, W), np.array([2])), 0.2)
    agent.observe(Transition(s[0], 2, 0.7, 0.9, s_next[0]))
    np.testing.assert_allclose(agent.W, expected, **CLOSE)
    assert not np.allclose(expected[:, 2], W[:, 2], **CLOSE)  # something was learned
    np.testing.assert_array_equal(agent.W[:, :2], W[:, :2])  # of this action alone


def test_online_step_does_not_depend_on_who_acted_before(wide, rng):
    """Phi(s) is taken over from acting only where it is that of this s."""
    states = rng.uniform(-2, 2, (3, 5)).astype(np.float32)
    weights = np.random.default_rng(3)
    fresh = agent_with_weights(OnlineQHD, wide, weights)
    used = agent_with_weights(OnlineQHD, wide, np.random.default_rng(3))
    fresh.load(used.params())
    used.act(states[2])
    t = Transition(states[0], 1, 1.0, 0.9, states[1])
    fresh.observe(t)
    used.observe(t)
    np.testing.assert_array_equal(fresh.W, used.W)


def test_replay_step_equals_reference(wide, rng):
    agent = agent_with_weights(ReplayQHD, wide, rng)
    agent._set_target(random_weights(wide, 3, rng))
    n = SETTINGS.batch_size - 1
    for _ in range(n):  # the batch is not full yet: nothing is learned
        s, s_next = rng.uniform(-2, 2, (2, 5)).astype(np.float32)
        agent.observe(Transition(s, int(rng.integers(3)), float(rng.normal()), float(rng.choice([0.0, 0.9])), s_next))
    W, W_target = agent.W.copy(), agent.W_target.copy()
    s, s_next = rng.uniform(-2, 2, (2, 5)).astype(np.float32)
    state = agent._rng.bit_generator.state
    rows = np.random.Generator(np.random.PCG64())
    rows.bit_generator.state = state
    agent.observe(Transition(s, 0, 1.0, 0.9, s_next))
    rows = agent.memory.sample(SETTINGS.batch_size, rows)
    memory = agent.memory
    X, X_next = wide(memory.s[rows]), wide(memory.s_next[rows])
    y = double_q_target(memory.r[rows], memory.discount[rows], q_values(X_next, W), q_values(X_next, W_target))
    delta = td_error(y, q_values(X, W), memory.a[rows])
    np.testing.assert_allclose(agent.W, semi_gradient(W, X, memory.a[rows], delta, 0.2), **CLOSE)
    np.testing.assert_array_equal(agent.W_target, W_target)


def walk(agent, rng, steps):
    """Episodes of five steps, ending in turn by the end and by the clock."""
    s = rng.uniform(-2, 2, 5).astype(np.float32)
    for k in range(steps):
        s_next = rng.uniform(-2, 2, 5).astype(np.float32)
        discount = 0.0 if k % 10 == 9 else 0.9
        agent.observe(Transition(s, int(rng.integers(3)), float(rng.normal()), discount, s_next))
        s = rng.uniform(-2, 2, 5).astype(np.float32) if k % 5 == 4 else s_next


@pytest.mark.parametrize("features", ["float32", "int8"])
def test_step_with_stored_features_equals_reference(wide, rng, features):
    """Also after the ring has closed; the reference has the features that are kept, so int8 is held as closely."""
    B = 32
    settings = dataclasses.replace(SETTINGS, batch_size=B, features=features, replay_size=B, update_every=4 * B + 3)
    agent = agent_with_weights(ReplayQHD, wide, rng, settings=settings)
    agent._set_target(random_weights(wide, 3, rng))
    W, W_target, memory = agent.W.copy(), agent.W_target.copy(), agent.memory
    walk(agent, rng, 4 * B + 2)
    np.testing.assert_array_equal(agent.W, W)
    rows = copy.deepcopy(agent._rng)
    walk(agent, rng, 1)
    rows = memory.sample(B, rows)

    # X has Phi^H, the replay Phi, real and imaginary parts in turn.
    Phi = agent.memory.X.astype(np.float64) * agent.memory.scale
    X = Phi.view(np.complex128).conj() if np.iscomplexobj(W) else Phi
    half = 0.5 / (127 * np.sqrt(wide.D)) if features == "int8" else 0
    assert np.abs((X - wide(memory.s)).view(np.float64)).max() <= half + 1e-7
    joined = memory.joined[rows][:, None]
    assert 0 < joined.sum() < B
    assert np.bincount(memory.a[rows]).max() > 4  # rows of an action are taken four at a time
    # Ends of episodes are not in the replay, but made anew.
    X_next = np.where(joined, X[(rows + 1) % B], wide(memory.s_next[rows]))
    X = X[rows]
    y = double_q_target(memory.r[rows], memory.discount[rows], q_values(X_next, W), q_values(X_next, W_target))
    delta = td_error(y, q_values(X, W), memory.a[rows])
    np.testing.assert_allclose(agent.W, semi_gradient(W, X, memory.a[rows], delta, 0.2), **CLOSE)


@njit
def products(X, W, actions):
    return row_products(X, (0, 1, 2, 3), W, actions, 1, X.shape[1])


@pytest.mark.parametrize("width", [1, 2, 31, 32, 33, 70, kernels.STORED_BLOCK])
@pytest.mark.parametrize("actions", [(0,), (2, 1)])
def test_products_of_whole_numbers_are_exact(rng, width, actions):
    """Of as many as a block has, and as large as they may be; the first column is not asked for."""
    X = rng.choice([-127, -3, 0, 1, 127], (4, 1 + width)).astype(np.int8)
    N = rng.choice([-kernels.REACH, -1, 0, 5, kernels.REACH], (3, 1 + width)).astype(np.int16)
    X[0, 1:], N[2, 1:] = 127, kernels.REACH
    exact = X[:, 1:].astype(np.int64) @ N[list(actions), 1:].T.astype(np.int64)
    assert products(X, N, actions) == tuple(exact.ravel())


@njit
def counted(X, W):
    return rounded_weights(X, W)


def test_weights_are_rounded_to_a_share_of_the_largest(rng):
    W = np.concatenate([rng.normal(size=(2, 300)) * [[1e-6], [1e6]], np.zeros((1, 300))]).astype(np.float32)
    N, unit = counted(np.zeros((1, 1), np.int8), W)
    assert np.abs(N).max(axis=1).tolist() == [kernels.REACH, kernels.REACH, 0]
    off = np.abs(unit[:, None] * N.astype(np.float64) - W)
    assert (off <= 0.5001 * unit[:, None]).all()  # half a unit, and the rounding of W / unit itself
    plain, ones = counted(np.zeros((1, 1), np.float32), W)
    np.testing.assert_array_equal(plain, W)
    assert (ones == 1).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("features", ["float32", "int8"])
def test_weights_that_are_not_finite_are_noticed(wide, rng, features, broken):
    settings = dataclasses.replace(SETTINGS, features=features, replay_size=40)
    agent = agent_with_weights(ReplayQHD, wide, rng, settings=settings)
    walk(agent, rng, 20)
    agent._rows[:, 3] = broken
    with pytest.raises(FedQHDError, match="TD error became"):
        walk(agent, rng, 20)


def test_whole_numbers_value_states_as_the_weights_do(rng):
    """The sum of |delta| of a step, to what half a unit in every weight can make of it; on average it is much less."""
    settings = dataclasses.replace(SETTINGS, batch_size=32, features="int8", replay_size=200, update_every=1000)
    agent = agent_with_weights(ReplayQHD, ENCODERS["fourier"].sample(5, 1000, 1.3, rng), rng, settings=settings)
    walk(agent, rng, 200)
    m, u = agent.memory, rng.random(32)
    rows = kernels.draw_rows(u, m.size)
    X, W = agent.memory.scale * agent.memory.X.astype(np.float64), agent.W.astype(np.float64)
    X_next = np.where(m.joined[rows][:, None], X[(rows + 1) % 200], agent.encoder(m.s_next[rows]))
    Q_next = q_values(X_next, W)
    delta = td_error(double_q_target(m.r[rows], m.discount[rows], Q_next, Q_next), q_values(X[rows], W), m.a[rows])
    found = kernels.stored_step(
        *agent._last.args, agent.memory.X, agent.memory.scale, m.joined, m.a, m.r, m.discount, m.s_next, u, m.size, 0.0,
        agent._rows, agent._target_rows, agent._N_target, agent._unit_target, agent._phi_next,
    )  # fmt: skip
    off = np.abs(W).max() / kernels.REACH / 2 * (np.abs(X[rows]).sum() + np.abs(X_next).sum())
    assert abs(found - np.abs(delta).sum()) < 0.1 * off < 0.01 * found


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [2.0, 0.0, 2.0]])
def test_ties_are_broken_evenly(values):
    q = np.array(values, np.float32)
    best = np.flatnonzero(q == q.max())
    picks = [kernels.greedy(q, u) for u in (np.arange(300) + 0.5) / 300]
    assert {int(k): picks.count(k) for k in best} == dict.fromkeys(best.tolist(), 300 // len(best))


def test_nan_is_noticed():
    assert kernels.greedy(np.array([1.0, np.nan], np.float32), 0.5) == -1
    assert kernels.greedy(np.array([np.inf, 0.0], np.float32), 0.5) == -1


@pytest.mark.parametrize("actions", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_values_of_many_rows_are_a_product_of_matrices(actions, dtype, rng):
    """Rows go four at a time and actions two: 4 and 2 divide neither 11 nor 3."""
    X = rng.integers(-127, 128, (11, 70)).astype(dtype)
    W = rng.normal(size=(actions, 70)).astype(np.result_type(dtype, np.float32))
    Q = np.full((11, actions), np.nan, W.dtype)
    kernels.values(X, W, Q)
    np.testing.assert_allclose(Q, X.astype(float) @ W.T.astype(float), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("dtype", "off"), [(np.int8, 0.5 / 127), (np.float32, 1e-6)])
def test_features_are_kept_as_they_are_or_rounded(wide, dtype, off, rng):
    """Off by half a step of the 127 at most, or by nothing."""
    z = rng.normal(size=wide.n).astype(np.float32)
    exact = wide.features(z[None])[0]
    X, phi, seen = np.zeros((3, len(exact)), dtype), np.zeros_like(exact), np.full(wide.n, np.nan, np.float32)
    unit = np.float32(1 / (127 * np.sqrt(wide.D)) if dtype == np.int8 else 1)
    kernels.store_features(*wide.kernel_args(), z, seen, phi, unit, X, 1)
    np.testing.assert_allclose(phi, exact, atol=1e-5)
    assert np.abs(unit * X[1] - exact).max() <= off / np.sqrt(wide.D) * 1.01 + 1e-6
    assert not X[[0, 2]].any()
