"""The reference Q*: interpolation and value iteration by hand, then a real environment."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fedqhd.core.errors import FedQHDError
from fedqhd.envs.make import make_env
from fedqhd.gap import reference as module
from fedqhd.gap.grid import grid_points, interpolation, value_iteration
from fedqhd.gap.reference import GRIDS, bellman_error, discounted_returns, path_of, reference, settings_for, transitions

COARSE = dataclasses.replace(GRIDS["MountainCar-v0"], points=(101, 101))


def test_interpolation_is_exact_for_what_is_linear_in_each_variable(rng):
    axes = [np.linspace(-1, 1, 5), np.linspace(0, 3, 4), np.linspace(2, 4, 3)]
    f = lambda s: 1 + 2 * s[:, 0] * s[:, 1] - 3 * s[:, 2] + s[:, 0] * s[:, 1] * s[:, 2]  # noqa: E731
    points = rng.uniform([-1, 0, 2], [1, 3, 4], (50, 3))
    np.testing.assert_allclose(interpolation(axes, points) @ f(grid_points(axes)), f(points), atol=1e-5)
    outside = np.array([[-9.0, 1.0, 3.0]])
    edge = np.array([[-1.0, 1.0, 3.0]])
    np.testing.assert_allclose(interpolation(axes, outside) @ f(grid_points(axes)), f(edge), atol=1e-5)


def test_value_iteration_by_hand():
    """Two states. Staying pays 1, leaving for the second pays 0; the second pays 3 once and ends. gamma = 1/2:
    V2 = 3, V1 = max(1 + V1 / 2, V2 / 2) = 2."""
    here, there = (interpolation([np.array([0.0, 1.0])], np.array([[x], [1.0]])) for x in (0.0, 1.0))
    r = np.array([[1.0, 0.0], [3.0, 3.0]])
    discount = np.array([[0.5, 0.5], [0.0, 0.0]])
    Q, change = value_iteration(r, discount, [here, there], np.zeros(2), 1e-9)
    np.testing.assert_allclose(Q, [[2.0, 1.5], [3.0, 3.0]], atol=1e-6)
    assert change <= 1e-9


def test_transitions_are_the_environments_own():
    env = make_env("MountainCar-v0")
    s, _ = env.reset(seed=3)
    r, ended, after = transitions(make_env("MountainCar-v0"), np.array([s], float))
    s_next, reward, terminated, _, _ = env.step(2)
    # The environment shows float32 and keeps float64.
    np.testing.assert_allclose(after[0, 2], s_next, atol=1e-6)
    assert (r[0, 2], ended[0, 2]) == (reward, terminated)


@pytest.mark.slow
def test_a_reference_solves_its_task_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDQHD_CACHE", str(tmp_path))
    policy, about = reference("MountainCar-v0", COARSE)
    assert about["greedy_return"] > about["solved_at"] == -110
    assert about["settings"]["points"] == [101, 101]
    assert about["promised_off_by"] < 2  # of values down to -65
    # A grid three times as fine in each variable promises nearly the same, and has less Bellman error.
    states = np.random.default_rng(0).uniform(COARSE.low, COARSE.high, (200, 2))
    fine = dataclasses.replace(COARSE, points=(301, 301))
    finer = module.Policy(
        module.GridModel(fine, module.solve("MountainCar-v0", fine), policy.scaler), policy.scaler, policy.env
    )
    assert np.abs(policy.q(states) - finer.q(states)).mean() < 1
    assert bellman_error(finer, states, 0.99).mean() < bellman_error(policy, states, 0.99).mean() < 0.1
    monkeypatch.setattr(module, "solve", None)  # a second call reads the file
    again, note = reference("MountainCar-v0", COARSE)
    assert note == about
    np.testing.assert_array_equal(again.q(states), policy.q(states))


def test_what_a_policy_earns_by_hand(tmp_path, monkeypatch):
    """From just below the flag at full speed one step ends it: -1, whatever the policy."""
    monkeypatch.setenv("FEDQHD_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "check", lambda policy, settings: {})
    policy, _ = reference("MountainCar-v0", dataclasses.replace(COARSE, points=(11, 11)))
    assert discounted_returns(policy, np.array([[0.49, 0.07]]), 0.99) == pytest.approx(-1.0)
    assert discounted_returns(policy, np.array([[-0.5, 0.0]]), 0.99, steps=3) == pytest.approx(-(1 + 0.99 + 0.99**2))


def test_too_coarse_a_grid_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDQHD_CACHE", str(tmp_path))
    with pytest.raises(FedQHDError, match=r"points=\[4, 4\] returns -.* where -110.0 solves the task: choose a finer"):
        reference("MountainCar-v0", dataclasses.replace(COARSE, points=(4, 4)))
    assert not list(tmp_path.rglob("*.npz"))


def test_environments_and_discounts_without_one_are_named():
    with pytest.raises(FedQHDError, match="env='Acrobot-v1' has no reference"):
        reference("Acrobot-v1")
    with pytest.raises(FedQHDError, match=r"gamma=1\.0 has no finite reference"):
        settings_for("CartPole-v1", 1.0)
    a, b = (path_of("CartPole-v1", settings_for("CartPole-v1", gamma)) for gamma in (0.99, 0.95))
    assert a != b


@pytest.mark.slow
def test_the_reference_of_cartpole(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDQHD_CACHE", str(tmp_path))
    _, about = reference("CartPole-v1")
    assert about["greedy_return"] == about["greedy_return_lowest"] == 500
    assert abs(about["promised_mean"] - about["earned_mean"]) < 3  # of values up to 100
