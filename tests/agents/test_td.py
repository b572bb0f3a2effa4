"""TD by hand: golden numbers with decoys where a wrong pick would show."""

from __future__ import annotations

import numpy as np
import pytest

from fedqhd.agents.td import double_q_target, q_values, semi_gradient, td_error
from fedqhd.encoders import ComplexFourier


def test_double_q_picks_online_and_values_delayed():
    q_next = np.array([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
    q_target = np.array([[90.0, 10.0, 80.0], [4.0, 60.0, 70.0]])  # decoys: 90 and 70 are its own maxima
    y = double_q_target(np.array([1.0, 2.0]), np.array([0.5, 0.5]), q_next, q_target)
    np.testing.assert_array_equal(y, [1 + 0.5 * 10, 2 + 0.5 * 4])


def test_termination_lives_in_the_discount():
    q = np.array([[100.0, 50.0]])
    assert double_q_target(np.array([3.0]), np.array([0.0]), q, q) == 3.0
    assert double_q_target(np.array([3.0]), np.array([0.9]), q, q) == 93.0


def test_semi_gradient_by_hand():
    X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    W = semi_gradient(np.zeros((2, 2)), X, np.array([0, 1, 0]), np.array([1.0, -1.0, 2.0]), 0.5)
    # action 0: 0.5 (1 [1,0] + 2 [1,1]) = [1.5, 1]; action 1: 0.5 (-1) [0,2] = [0, -1]
    np.testing.assert_array_equal(W, [[1.5, 0.0], [1.0, -1.0]])


def test_td_error_takes_the_action_that_was_played():
    np.testing.assert_array_equal(
        td_error(np.array([1.0, 1.0]), np.array([[0.2, 9.0], [9.0, 0.3]]), np.array([0, 1])), [0.8, 0.7]
    )


@pytest.fixture
def regression(rng):
    encoder = ComplexFourier.sample(2, 60, 1.0, rng)
    s = rng.normal(size=(40, 2))
    return encoder(s), np.sin(s).sum(axis=1)


def squared_error(X, W, y):
    return float(np.sum((q_values(X, W)[:, 0] - y) ** 2))


def descend(X, y, features, steps=200):
    W, errors = np.zeros((X.shape[1], 1), complex), []
    a = np.zeros(len(y), int)
    for _ in range(steps):
        delta = td_error(y, q_values(X, W), a)
        errors.append(squared_error(X, W, y))
        W = semi_gradient(W, features, a, delta, 0.02)
    return np.array(errors)


def test_complex_steps_descend_their_own_squared_error(regression):
    errors = descend(*regression, features=regression[0])
    assert np.all(np.diff(errors) < 0)
    assert errors[-1] < 0.1 * errors[0]


def test_without_the_conjugate_they_diverge(regression):
    """Negative control: W += eta X^T delta in place of X^H delta."""
    errors = descend(*regression, features=regression[0].conj(), steps=400)
    assert errors[-1] > errors[0]
