"""Environments, scaling and anchors."""

from __future__ import annotations

import numpy as np
import pytest

from fedqhd.core.errors import FedQHDError
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import ABSURD, StateScaler, make_scaler
from worlds import CORRIDOR


@pytest.fixture
def cartpole():
    env = make_env("CartPole-v1")
    yield env
    env.close()


def scaler_of(env, scaling="rollout", low=(), high=(), seed=0):
    return make_scaler(env, scaling, low, high, np.random.default_rng(seed))


def test_rollout_scaling_has_mean_0_and_deviation_1(cartpole):
    scaler = scaler_of(cartpole)
    z = scaler(random_states(cartpole, 5000, np.random.default_rng(0)))
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-5)
    assert z.dtype == np.float32


def test_absurd_bounds_give_way_to_rollouts(cartpole):
    scaler = scaler_of(cartpole, "box")
    assert not np.isfinite(cartpole.observation_space.high).all() or cartpole.observation_space.high.max() > ABSURD
    assert scaler.high[0] == pytest.approx(4.8)
    assert 1 < scaler.high[1] < 10
    np.testing.assert_allclose(scaler(scaler.high), 4, atol=1e-5)
    np.testing.assert_allclose(scaler(scaler.low), -4, atol=1e-5)


def test_given_bounds(cartpole):
    scaler = scaler_of(cartpole, "bounds", (-1, -2, -3, -4), (1, 2, 3, 8))
    np.testing.assert_allclose(scaler(np.array([1, -2, 0, 2])), [4, -4, 0, 0])


def test_no_scaling_leaves_states_as_they_are(cartpole):
    scaler = scaler_of(cartpole, "none")
    states = random_states(cartpole, 100, np.random.default_rng(0))
    np.testing.assert_array_equal(scaler(states), states.astype(np.float32))
    assert scaler(states).dtype == np.float32
    box = scaler_of(cartpole, "box")
    assert all(np.array_equal(getattr(scaler, name), getattr(box, name)) for name in ("low", "high"))


@pytest.mark.parametrize(
    ("low", "high", "says"), [((), (1,), "scale_low has 0"), ((1,) * 4, (0,) * 4, "must be below")]
)
def test_bounds_that_make_no_sense(cartpole, low, high, says):
    with pytest.raises(FedQHDError, match=says):
        scaler_of(cartpole, "bounds", low, high)


def test_a_variable_that_never_moves_is_left_alone():
    env = make_env("LunarLander-v3")
    scaler = scaler_of(env)
    assert np.all(scaler.scale > 0)
    assert np.isfinite(scaler(random_states(env, 300, np.random.default_rng(1)))).all()


def anchors_of(env, source, m=100, file="", seed=3):
    scaler = scaler_of(env)
    return make_anchors(source, m, file, env, scaler, np.random.default_rng(seed)), scaler


def test_anchor_sources(cartpole):
    rollout, scaler = anchors_of(cartpole, "rollout")
    uniform, _ = anchors_of(cartpole, "uniform")
    mix, _ = anchors_of(cartpole, "mix", 101)
    assert rollout.shape == uniform.shape == (100, 4)
    assert mix.shape == (101, 4)
    assert len(np.unique(rollout, axis=0)) > 95
    # Uniform anchors reach the corners of the box, rollouts stay in the middle of it.
    assert np.abs(uniform[:, 0]).max() > 2 * np.abs(rollout[:, 0]).max()
    assert np.all(uniform >= scaler(scaler.low) - 1e-4)
    assert np.all(uniform <= scaler(scaler.high) + 1e-4)
    np.testing.assert_array_equal(rollout, anchors_of(cartpole, "rollout")[0])
    assert not np.array_equal(rollout, anchors_of(cartpole, "rollout", seed=4)[0])


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_anchor_file(cartpole, tmp_path, suffix):
    states = np.random.default_rng(0).normal(size=(30, 4))
    file = tmp_path / f"a.{suffix}"
    np.save(file, states) if suffix == "npy" else np.savez(file, states=states)
    anchors, scaler = anchors_of(cartpole, "file", file=str(file))
    np.testing.assert_array_equal(anchors, scaler(states))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (np.zeros((5, 3)), r"shape \(5, 3\): \(m, 4\)"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        (np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]]), "not finite in row 1"),
        (np.array([{"a": 1}], dtype=object), "cannot be read"),
        (b"not numpy", "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_bad_anchor_files(cartpole, tmp_path, content, says):
    file = tmp_path / "a.npy"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        np.save(file, content, allow_pickle=True)
    with pytest.raises(FedQHDError, match=says) as error:
        anchors_of(cartpole, "file", file=str(file))
    assert "anchor_file=" in str(error.value)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPole-v9999", "env='CartPole-v9999' is not an environment"),
        ("os:a:b", "env='os:a:b' is not an environment: give an id such as CartPole-v1, or module:Env"),
        ("CartPole-v9999", "did you mean 'CartPole-v1'"),
        ("CartPoel-v1", "did you mean 'CartPole-v1'"),
        ("Nope-v0", "env='Nope-v0' is not an environment that Gymnasium knows: give an id"),
        ("own_things:several_actions", "a discrete one, or a box of vectors with finite bounds, is needed"),
        ("own_things:endless_actions", "a discrete one, or a box of vectors with finite bounds, is needed"),
    ],
)
def test_environments_that_do_not_fit(env, says):
    with pytest.raises(FedQHDError, match=says):
        make_env(env)


def test_a_repeated_action_adds_up_its_steps():
    one, three = make_env(CORRIDOR), make_env(CORRIDOR, repeat=3)
    (a, _), (b, _) = one.reset(seed=1), three.reset(seed=1)
    done, rewards, lengths = False, [], []
    while not done:
        b, reward, done, truncated, info = three.step(1)
        steps = [one.step(1) for _ in range(info["env_steps"])]
        a = steps[-1][0]
        np.testing.assert_array_equal(a, b)
        assert (done, truncated) == steps[-1][2:4]
        rewards.append((reward, sum(s[1] for s in steps)))
        lengths.append(info["env_steps"])
    assert all(x == y for x, y in rewards)
    assert set(lengths[:-1]) == {3}  # the end may come within the last action
    assert 1 <= lengths[-1] <= 3


def test_a_repeated_action_ends_with_the_time():
    env = make_env(CORRIDOR, repeat=7)
    env.reset(seed=1)
    steps = [env.step(0) for _ in range(3)]
    assert [s[4]["env_steps"] for s in steps] == [7, 7, 6]
    assert [s[3] for s in steps] == [False, False, True]


def test_raw_undoes_scaling(rng):
    scaler = StateScaler(np.array([1.0, -2.0]), np.array([0.5, 4.0]), np.zeros(2), np.ones(2))
    assert scaler.raw(np.array([[2.0, 0.25]])).tolist() == [[2.0, -1.0]]
    s = rng.normal(size=(20, 2))
    np.testing.assert_allclose(scaler.raw(scaler(s)), s, atol=1e-5)
