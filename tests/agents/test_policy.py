"""A trained policy: Stable-Baselines3's manners, files that notice damage."""

from __future__ import annotations

import re

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from conftest import tiny
from fedqhd.agents.model import MLP
from fedqhd.agents.policy import Policy, greedy_returns, load_policy, model_path
from fedqhd.agents.td import q_values
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import DamagedFile, read_arrays, write_arrays
from fedqhd.encoders import RandomFourier
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler
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


def rewritten(run, tmp_path, arrays=(), **note):
    """The file of a policy with other arrays and another note, and a right checksum."""
    old, about = read_arrays(model_path(run, 0))
    about = {k: v for k, v in {**about, **note}.items() if v is not MISSING}
    write_arrays(tmp_path / "m.npz", {**old, **dict(arrays)}, about)
    return tmp_path / "m.npz"


MISSING = object()


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ({"env": 7}, "env=7 is not the name"), ({"env": ""}, "not the name"), ({"env": "a\nb"}, "not the name"),
        ({"env": "\x1b[2J"}, "not the name"), ({"env": MISSING}, "'env' is missing"),
        ({"epsilon": "0.1"}, "epsilon='0.1' is not a number from 0 to 1"), ({"epsilon": None}, "epsilon=None"),
        ({"epsilon": float("nan")}, "epsilon=nan"), ({"epsilon": -1}, "epsilon=-1"),
        ({"epsilon": True}, "epsilon=True"),
        ({"epsilon": MISSING}, "'epsilon' is missing"), ({"action_repeat": 0}, "action_repeat=0"),
        ({"action_repeat": "2"}, "action_repeat='2'"), ({"action_repeat": 2.0}, "action_repeat=2.0"),
        ({"kind": 3}, "unknown model 3"), ({"kind": ["mlp"]}, "unknown model"),
        ({"kind": MISSING}, "unknown model None"),
        ({"fingerprint": 5}, "not text"), ({"fingerprint": "0"}, "fingerprint"), ({"encoder": {}}, "not text"),
        ({"encoder": MISSING}, "'encoder' is missing"), ({"kind": "mlp"}, "'layers' is missing"),
        ({"kind": "mlp", "layers": "3"}, "layers='3'"), ({"kind": "mlp", "layers": 0}, "layers=0"),
        ({"kind": "mlp", "layers": 10**9}, "is missing"), ({"version": True}, "no version"),
    ],
)  # fmt: skip
def test_a_malformed_note_is_refused_in_a_sentence(run, tmp_path, note, said):
    with pytest.raises(DamagedFile, match=re.escape(said)) as caught:
        Policy.load(rewritten(run, tmp_path, **note))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["W", "scaler.shift", "scaler.scale", "scaler.low", "scaler.high", "encoder.b"])
def test_numbers_that_are_not_finite_are_refused(run, tmp_path, name, value):
    x = read_arrays(model_path(run, 0))[0][name].copy()
    x.reshape(-1)[1] = value
    with pytest.raises(DamagedFile, match="finite"):
        Policy.load(rewritten(run, tmp_path, {name: x}))


def test_a_scale_that_is_not_positive_is_refused(run, tmp_path):
    for bad in (0.0, -1.0):
        with pytest.raises(DamagedFile, match="which is not positive"):
            Policy.load(rewritten(run, tmp_path, {"scaler.scale": np.array([1.0, bad, 1.0, 1.0])}))


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("W", np.zeros((3, 2), np.float32)), ("W", np.zeros(64, np.float32)), ("W", np.zeros((64, 2))),
        ("W", np.zeros((64, 0), np.float32)), ("encoder.b", np.zeros(3, np.float32)), ("encoder.b", np.zeros(64)),
        ("encoder.c", np.zeros(64, np.float32)), ("scaler.shift", np.zeros(3)), ("scaler.low", np.zeros((4, 1))),
        ("scaler.scale", np.ones(4, complex)),
    ],
)  # fmt: skip
def test_arrays_of_wrong_types_and_shapes_are_refused(run, tmp_path, name, x):
    """The kernels would read beyond the end of a phase that is too short."""
    arrays = {**read_arrays(model_path(run, 0))[0], name: x}
    inside = {k.removeprefix("encoder."): v for k, v in arrays.items() if k.startswith("encoder.")}
    path = rewritten(run, tmp_path, arrays, fingerprint=RandomFourier(**inside).fingerprint())
    with pytest.raises(DamagedFile):
        Policy.load(path)


def test_layers_that_do_not_fit_each_other_are_refused(tmp_path):
    scaler = StateScaler(*(np.ones(2) for _ in range(4)))
    Policy(MLP([(np.ones((5, 2)), np.ones(5)), (np.ones((2, 5)), np.ones(2))]), scaler, "CartPole-v1").save(
        tmp_path / "m.npz"
    )
    arrays, about = read_arrays(tmp_path / "m.npz")
    for name, x in (("1.weight", np.ones((2, 4))), ("0.bias", np.ones(4)), ("0.weight", np.ones(10))):
        write_arrays(tmp_path / "m.npz", {**arrays, name: x.astype(np.float32)}, about)
        with pytest.raises(DamagedFile, match="does not fit the others"):
            Policy.load(tmp_path / "m.npz")
    write_arrays(tmp_path / "m.npz", {**arrays, "0.bias": np.ones(5)}, about)
    with pytest.raises(DamagedFile, match="float64"):
        Policy.load(tmp_path / "m.npz")
