"""The network of a DQN against plain numpy in double precision.

`federation/test_methods.py` compares it with PyTorch.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedqhd import kernels
from fedqhd.agents.learners.dqn import DQN, DQNSettings, initial, layers_of
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Transition
from fedqhd.kernels.matrices import LANES, multiply

# Sums of up to 130 products in float32, each of order one, carry errors of about 1e-6.
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SHAPES = [(4, 2), (3, 17, 5), (2, 16, 8, 3), (4, 128, 128, 2), (1, 130, 3, 33, 1)]


@pytest.mark.parametrize("n", [1, 7, 8, 19])
@pytest.mark.parametrize("width", [1, 16, 17, 40])
def test_a_product_of_whole_numbers_is_exact(n, width, rng):
    """Float32 holds these sums exactly, and only the columns that fit are written."""
    X = rng.integers(-9, 10, (n, 6)).astype(np.float32)
    Y = rng.integers(-9, 10, (6, -(-width // LANES) * LANES)).astype(np.float32)
    frame = np.full((n + 1, width), np.float32(0.5))
    for left in (X, np.asfortranarray(X)):
        multiply(left, Y, frame[:n])
        np.testing.assert_array_equal(frame[:n], (X @ Y)[:, :width])
        assert (frame[n] == 0.5).all()


def forward(layers, x):
    """Return the inputs (B, in) of all layers and the values (B, A)."""
    through = [x]
    for W, b in zip(layers[::2], layers[1::2], strict=True):
        x = through[-1] @ W.T + b
        through.append(np.maximum(x, 0) if len(through) < len(layers) // 2 else x)
    return through


def backward(layers, through, g):
    gradient = []
    for k in range(len(layers) // 2 - 1, -1, -1):
        gradient = [g.T @ through[k], g.sum(axis=0), *gradient]
        g = (g @ layers[2 * k]) * (through[k] > 0)
    return gradient


def double(theta, sizes):
    return [layer.astype(float) for layer in layers_of(theta, sizes)]


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("B", [1, 16, 21])
def test_values_are_numpys(sizes, B, rng):
    theta, states = initial(sizes, rng), rng.normal(size=(B, sizes[0])).astype(np.float32)
    expected = forward(double(theta, sizes), states.astype(float))[-1]
    through, _, _ = kernels.network_scratch(sizes, B)
    through[: sizes[0], :B] = states.T
    kernels.network_forward(np.array(sizes), theta, through)
    np.testing.assert_allclose(through[-sizes[-1] :, :B].T, expected, **CLOSE)
    row = np.empty(sum(sizes), np.float32)
    for s, q in zip(states, expected, strict=True):
        kernels.network_values(np.array(sizes), theta, s, row)
        np.testing.assert_allclose(row[-sizes[-1] :], q, **CLOSE)


@pytest.mark.parametrize("sizes", SHAPES)
def test_a_state_has_the_same_bits_in_every_minibatch(sizes, rng):
    theta, states = initial(sizes, rng), rng.normal(size=(21, sizes[0])).astype(np.float32)
    found = []
    for B in (21, 1):
        for rows in (states[:B], states[20 - B + 1 :]):
            through, _, _ = kernels.network_scratch(sizes, B)
            through[: sizes[0], :B] = rows.T
            kernels.network_forward(np.array(sizes), theta, through)
            found.append(through[-sizes[-1] :, :B].copy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0][:, :1], found[2])
    np.testing.assert_array_equal(found[0][:, -1:], found[3])


def problem(sizes, B, rng, huber=0.3, lr=1e-3):
    """Return what one step on 50 transitions needs."""
    n = sizes[0]
    through, slopes, across = kernels.network_scratch(sizes, B)
    theta = initial(sizes, rng)
    return SimpleNamespace(
        sizes=np.array(sizes), theta=theta, target=initial(sizes, rng), gradient=np.zeros_like(theta),
        mean=np.zeros_like(theta), square=np.zeros_like(theta), through=through, slopes=slopes, across=across,
        S=rng.normal(size=(50, n)).astype(np.float32), A=rng.integers(sizes[-1], size=50),
        R=rng.normal(size=50).astype(np.float32), discount=rng.choice([0, 0.9], 50).astype(np.float32),
        S_next=rng.normal(size=(50, n)).astype(np.float32), u=rng.random(B), size=40, huber=huber, lr=lr, t=1,
    )  # fmt: skip


def step(p):
    return kernels.network_step(*vars(p).values())


def td_gradient(p):
    """Return the gradients with respect to the values (B, A) and to the parameters, in numpy."""
    sizes, rows = tuple(p.sizes), (p.u * p.size).astype(int)
    each, a = np.arange(len(rows)), p.A[rows]
    layers, s_next = double(p.theta, sizes), p.S_next[rows].astype(float)
    best = forward(layers, s_next)[-1].argmax(axis=1)
    y = p.R[rows] + p.discount[rows] * forward(double(p.target, sizes), s_next)[-1][each, best]
    through = forward(layers, p.S[rows].astype(float))
    g = np.zeros_like(through[-1])
    g[each, a] = np.clip(through[-1][each, a] - y, -p.huber, p.huber) / len(rows)
    return g, np.concatenate([x.ravel() for x in backward(layers, through, g)])


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("B", [1, 16, 21])
def test_a_step_is_numpys(sizes, B, rng):
    p = problem(sizes, B, rng)
    p.through[:], p.slopes[:], p.across[:] = 7, 7, 7  # what an earlier minibatch left behind does not count
    g, gradient = td_gradient(p)
    theta = p.theta.astype(float)
    total = step(p)
    assert total == pytest.approx(g.sum(), abs=1e-5)
    np.testing.assert_allclose(p.gradient, gradient, **CLOSE)
    # Adam's first step is lr g / (|g| + eps), up to its corrections of the averages.
    g32 = p.gradient.astype(float)
    np.testing.assert_allclose(p.theta, theta - p.lr * g32 / (np.abs(g32) + 1e-8), atol=1e-6)


def test_some_errors_are_clipped_and_some_are_not(rng):
    """Otherwise the comparison of steps would not show the Huber loss."""
    g, _ = td_gradient(problem((4, 128, 128, 2), 21, rng))
    edge = np.isclose(np.abs(g[g != 0]), 0.3 / 21)
    assert edge.any()
    assert not edge.all()


def test_the_same_step_has_the_same_bits_and_another_minibatch_has_others(rng):
    first = problem((4, 128, 128, 2), 32, rng)
    again, other = (SimpleNamespace(**{k: np.copy(v) if np.ndim(v) else v for k, v in vars(first).items()})
                    for _ in range(2))  # fmt: skip
    other.u = other.u[::-1] * 0.9
    for p in (first, again, other):
        step(p)
    np.testing.assert_array_equal(first.theta, again.theta)
    assert (first.theta != other.theta).any()


@pytest.mark.parametrize("where", ["theta", "target", "R"])
def test_a_gradient_that_is_not_finite_changes_nothing(where, rng):
    p = problem((3, 17, 5), 21, rng)
    getattr(p, where)[:] = np.nan
    names = ("theta", "gradient", "mean", "square")
    before = [getattr(p, name).copy() for name in names]
    assert not np.isfinite(step(p))
    for name, x in zip(names, before, strict=True):
        np.testing.assert_array_equal(getattr(p, name), x)


def agent(**settings):
    rng = np.random.default_rng
    return DQN(2, 3, (16, 16), DQNSettings(batch_size=4, learning_starts=4, **settings), rng(0), rng(1))


def test_an_agent_says_that_it_diverged():
    dqn, s = agent(), np.ones(2, np.float32)
    before = dqn._theta.copy()
    for r in (1.0, 1.0, np.nan):
        dqn.observe(Transition(s, 1, r, 0.9, s))
    with pytest.raises(FedQHDError, match=r"the gradient became nan: lr=0\.001 is likely too large"):
        dqn.observe(Transition(s, 1, np.nan, 0.9, s))
    assert dqn.updates == 0
    np.testing.assert_array_equal(dqn._theta, before)


def test_a_saved_memory_with_an_action_that_does_not_exist_is_refused():
    dqn, s = agent(), np.ones(2, np.float32)
    for a in (0, 2):
        dqn.observe(Transition(s, a, 1.0, 0.9, s))
    state = dqn.state()
    agent().restore(state)
    state["memory.a"] = state["memory.a"] + 1
    with pytest.raises(FedQHDError, match="its memory has actions from 1 to 3, and there are 3"):
        agent().restore(state)
