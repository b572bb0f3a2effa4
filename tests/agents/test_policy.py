"""A trained policy: Stable-Baselines3's manners, files that notice damage."""

from __future__ import annotations

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from conftest import tiny
from fedqhd.agents.policy import Policy, greedy_returns, load_policy
from fedqhd.agents.td import q_values
from fedqhd.core.errors import FedQHDError
from fedqhd.envs.make import make_env
from fedqhd.report.play import play
from fedqhd.runs.run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(tiny(folder, setting="heterogeneous", env="CartPole-v1", episodes=20))
    return folder


def test_predict_one_or_many(run, rng):
    policy = load_policy(run, client=1)
    obs = rng.normal(size=(7, 4)).astype(np.float32)
    actions, state = policy.predict(obs)
    assert actions.shape == (7,)
    assert state is None
    one, _ = policy.predict(obs[3])
    assert one.shape == ()
    assert one == actions[3]
    assert policy.predict(obs, state=(np.ones(1),))[1] == (np.ones(1),)


def test_values_are_those_of_the_reference(run, rng):
    policy = load_policy(run)
    obs = rng.normal(size=(9, 4))
    expected = q_values(policy.model.encoder(policy.scaler(obs)), policy.model.W)
    np.testing.assert_allclose(policy.q(obs), expected, atol=1e-4 * np.abs(expected).max())


def test_exploring_prediction_uses_epsilon(run, rng):
    policy = load_policy(run)
    obs = np.repeat(rng.normal(size=(1, 4)), 4000, axis=0)
    greedy = policy.predict(obs[:1])[0][0]
    policy.epsilon = 0.5
    share = np.mean(policy.predict(obs, deterministic=False)[0] == greedy)
    assert share == pytest.approx(0.75, abs=0.04)  # standard deviation 0.007
    assert np.all(policy.predict(obs)[0] == greedy)


def test_stable_baselines3_evaluates_it(run):
    policy = load_policy(run)
    env = Monitor(make_env("CartPole-v1"))
    env.reset(seed=5)
    mean, _ = evaluate_policy(policy, env, n_eval_episodes=5)
    assert 8 <= mean <= 500


def test_evaluation_repeats_and_its_seeds_matter(run):
    policy, env = load_policy(run), make_env("CartPole-v1")
    a, b, c = (greedy_returns(policy, env, 5, seed, 0) for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_wrong_observations_are_refused(run):
    with pytest.raises(FedQHDError, match=r"\(3,\).*\(4,\) or \(B, 4\)"):
        load_policy(run).predict(np.zeros(3))


def test_missing_models_are_named(run, tmp_path):
    with pytest.raises(FedQHDError, match=r"client=7 has no model.*clients 0, 1"):
        load_policy(run, client=7)
    with pytest.raises(FedQHDError, match="holds no trained models: give the folder of a finished run"):
        load_policy(tmp_path)
    with pytest.raises(FedQHDError, match="run='nowhere' does not exist: give the folder of a finished run"):
        load_policy("nowhere")


def test_a_negative_seed_is_refused(run):
    with pytest.raises(FedQHDError, match="seed=-3 is not possible: it must be at least 0"):
        greedy_returns(load_policy(run), make_env("CartPole-v1"), 1, -3, 0)


def test_only_gifs_are_recorded(run, tmp_path):
    with pytest.raises(FedQHDError, match=r"x\.mp4' is not possible: .* end in \.gif"):
        play(load_policy(run), tmp_path / "x.mp4")


def test_pickles_are_not_read(tmp_path):
    file = tmp_path / "m.npz"
    np.savez(file, **{"about.json": np.array([{"version": 1}], dtype=object)})
    with pytest.raises(FedQHDError, match="damaged"):
        Policy.load(file)


def test_a_newer_file_says_so(tmp_path):
    file = tmp_path / "m.npz"
    np.savez(file, **{"about.json": np.frombuffer(b'{"version": 99}', np.uint8)})
    with pytest.raises(FedQHDError, match="version 99"):
        Policy.load(file)
