"""Encoders of the user's own: maps, factories, transformers of scikit-learn, embeddings of torchhd, all mixed."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
import torchhd
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler

import fedqhd
from conftest import TINY, by_hand, live, tiny
from fedqhd.agents import LEARNERS
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.rng import generator
from fedqhd.encoders import RandomFourier, draw_encoder
from fedqhd.envs.make import make_env
from fedqhd.gap.measure import measure_gap
from fedqhd.runs import checkpoint
from fedqhd.runs.run import train
from own_things import Waves, waves

SKLEARN = ["sklearn.kernel_approximation:" + name for name in ("RBFSampler", "Nystroem", "PolynomialCountSketch")]
TORCHHD = ["torchhd.embeddings:" + name for name in ("Sinusoid", "Projection", "Density", "FractionalPower")]
OWN = ["own_things:waves", "own_things:complex_waves", "own_things:tiles", "own_things:Waves"]
STATES = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)


def drawn(name, seed=0, D=64):
    return draw_encoder(name, 4, D, 1.5, np.random.default_rng(seed), STATES)


@pytest.mark.parametrize("name", [*OWN, *SKLEARN, *TORCHHD])
def test_any_map_is_an_encoder(name):
    encoder = drawn(name)
    X = encoder(STATES)
    assert X.shape == (300, encoder.D)
    assert np.all(np.linalg.norm(X, axis=1) <= 1 + 1e-3)
    assert np.linalg.norm(X, axis=1).max() > 0.1
    assert np.linalg.matrix_rank(X) > 4  # more than the state itself
    # What agents work with: real numbers, the imaginary part with the sign of Phi, not of its conjugate.
    F = encoder.features(STATES[:3])
    assert F.dtype == np.float32
    np.testing.assert_allclose(F, np.ascontiguousarray(X[:3].conj().astype(encoder.dtype)).view(np.float32), atol=1e-5)
    assert encoder.fingerprint() == drawn(name).fingerprint()
    if name not in OWN[:2]:
        assert encoder.fingerprint() != drawn(name, seed=1).fingerprint()


def test_the_libraries_own_features_up_to_a_factor():
    for name, library in zip(SKLEARN, (RBFSampler, Nystroem, PolynomialCountSketch), strict=True):
        encoder = drawn(name)
        own = np.random.default_rng(0)
        own.integers(2**31)  # that of torch
        other = library(n_components=64, gamma=1 / 4.5, random_state=int(own.integers(2**31)))
        X, Y = encoder(STATES), other.fit(STATES.astype(np.float64)).transform(STATES.astype(np.float64))
        np.testing.assert_allclose(X / np.abs(X).max(), Y / np.abs(Y).max(), atol=1e-9)
    encoder = drawn("torchhd.embeddings:Sinusoid")
    torch.manual_seed(int(np.random.default_rng(0).integers(2**31)))
    Y = torchhd.embeddings.Sinusoid(4, 64)(torch.as_tensor(STATES)).as_subclass(torch.Tensor).numpy()
    X = encoder(STATES)
    np.testing.assert_allclose(X / np.abs(X).max(), Y / np.abs(Y).max(), atol=1e-5)


def test_torchs_global_generator_is_left_alone():
    torch.manual_seed(5)
    a = torch.rand(1)
    torch.manual_seed(5)
    drawn("torchhd.embeddings:Sinusoid")
    assert torch.rand(1) == a


def twin(learner, n=2, **settings):
    """Our own encoder's agent, and one that has the same map from outside; float32 features in both."""
    ours = RandomFourier.sample(n, 50, 1.2, np.random.default_rng(2))
    theirs = draw_encoder(
        fedqhd.resolve({"encoder": lambda s: ours(s)}).encoder[0], n, 50, 1.2, generator(0, 0, "x"), STATES
    )
    given = {"eta": 0.3, "batch_size": 8, "features": "float32", "replay_size": 100, "fit_lam": 0.3, **settings}
    kind = LEARNERS.find(learner)
    kept = by_hand(learner, **given)
    return [kind(e, 3, kept, np.random.default_rng(4)) for e in (ours, theirs)]


def test_a_library_that_is_missing_is_named_with_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sklearn.kernel_approximation")
    with pytest.raises(FedQHDError, match=r"cannot be loaded: .*; install it with pip install scikit-learn"):
        fedqhd.train(tiny(tmp_path, env="CartPole-v1", encoder="sklearn.kernel_approximation:Nystroem"))


@pytest.mark.parametrize(
    ("learner", "settings"),
    [("online", {}), ("replay", {}), ("least-squares", {}), ("least-squares", {"explore": "bonus"})],
)
def test_the_general_path_learns_what_the_kernels_learn(learner, settings):
    fast, plain = twin(learner, **settings)
    assert live(fast, 150, 6) == live(plain, 150, 6)
    # float32 sums in another order, over 150 updates
    np.testing.assert_allclose(plain.W, fast.W, atol=2e-3 * np.abs(fast.W).max())
    assert np.abs(fast.W).max() > 0.1


def test_recomputed_features_are_those_kept():
    agents = []
    for features in ("float32", "recompute"):
        encoder = draw_encoder("own_things:Waves", 2, 40, 1.0, np.random.default_rng(1), STATES)
        settings = by_hand("replay", eta=0.2, batch_size=8, features=features, replay_size=60)
        agents.append(LEARNERS.find("replay")(encoder, 3, settings, np.random.default_rng(4)))
        live(agents[-1], 100, 6)
    np.testing.assert_allclose(agents[0].W, agents[1].W, atol=1e-6)


@pytest.mark.parametrize("learner", ["online", "replay", "least-squares"])
def test_clients_with_encoders_of_every_kind_learn_together(learner, tmp_path):
    """And what they learned is played, measured and evaluated from its files."""
    kinds = ["fourier", "symbolic", "own_things:complex_waves", "own_things:tiles", SKLEARN[1], TORCHHD[0]]
    config = tiny(tmp_path / "x", env="CartPole-v1", setting="heterogeneous", encoder=kinds, clients=6, learner=learner)
    summary = train(config)
    assert summary["protocol"] in ("AnchorCompile", "TeacherAnchors")
    obs = np.random.default_rng(0).normal(size=(5, 4))
    for client in range(6):
        policy = load_policy(tmp_path / "x", client)
        assert policy.model.encoder.name == kinds[client]
        expected = (policy.model.encoder(policy.scaler(obs)) @ policy.model.W).real
        np.testing.assert_allclose(policy.q(obs), expected, atol=1e-3 * np.abs(expected).max())
    assert fedqhd.evaluate(tmp_path / "x", 1).shape == (6, 1)
    if learner == "online":
        report = measure_gap(tmp_path / "x", states=1500, episodes=1)
        assert [row["client"] for row in report["clients"]] == list(range(6))


def test_clients_in_processes_of_their_own_come_to_the_same(tmp_path):
    """What cannot be pickled does not travel: neither a local function nor what it closes over."""
    kinds = ["own_things:tiles", SKLEARN[1], TORCHHD[0]]
    settings = {"env": "CartPole-v1", "setting": "heterogeneous", "encoder": kinds, "clients": 3}
    for engine in ("local", "process"):
        train(tiny(tmp_path / engine, **settings | {"engine": engine}))
    for i in range(3):
        W = [load_policy(tmp_path / engine, i).model.W for engine in ("local", "process")]
        assert np.array_equal(*W)


def test_one_encoder_for_all_is_averaged(tmp_path):
    summary = train(tiny(tmp_path / "x", env="CartPole-v1", encoder="own_things:Waves"))
    assert summary["protocol"] == "ParameterAverage"
    models = [load_policy(tmp_path / "x", i).model for i in range(2)]
    assert np.array_equal(models[0].W, models[1].W)


@pytest.mark.parametrize("learner", ["online", "replay", "least-squares"])
def test_a_run_with_own_encoders_resumes_to_the_bit(learner, tmp_path, monkeypatch):
    settings = {"env": "CartPole-v1", "setting": "heterogeneous", "learner": learner, "encoder": [*OWN[2:], SKLEARN[1]]}
    whole = train(tiny(tmp_path / "whole", episodes=8, **settings))
    save = checkpoint.save

    def cut(*args):
        save(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        train(tiny(tmp_path / "cut", episodes=8, **settings))
    monkeypatch.undo()
    again = train(tiny(tmp_path / "cut", episodes=8, **settings), resume=True)
    assert again["greedy_return_per_client"] == whole["greedy_return_per_client"]
    for i in range(2):
        W = [load_policy(tmp_path / run, i).model.W for run in ("whole", "cut")]
        assert np.array_equal(*W)


def test_objects_from_python(tmp_path):
    """Fitted and unfitted transformers, a module, one of our encoders, a lambda: each a client's."""
    pca = PCA(3).fit(STATES.astype(np.float64))
    ours = RandomFourier.sample(4, 30, 1.0, np.random.default_rng(0))
    given = [pca, Nystroem(n_components=20), torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.Tanh()), ours, Waves]
    summary = fedqhd.train(
        **{**TINY, "clients": 6}, env="CartPole-v1", setting="heterogeneous", out=str(tmp_path / "x"),
        encoder=[*given, lambda s: waves(s)],
    )  # fmt: skip
    dims = [load_policy(summary["out"], i).model.encoder.D for i in range(6)]
    assert dims == [3, 20, 9, 30, 64, 60]
    names = json.dumps(fedqhd.resolve({"encoder": given, "setting": "heterogeneous"}).encoder)
    assert "python:PCA" in names
    assert "own_things:Waves" in names


def test_a_module_that_draws_anew_is_noticed_on_loading(tmp_path):
    """The saved policy needs the encoder that it was trained with, not another of the same name."""
    import own_things

    train(tiny(tmp_path / "x", env="CartPole-v1", encoder="own_things:waves"))
    before = own_things.FREQUENCIES
    try:
        own_things.FREQUENCIES = before + 0.01
        with pytest.raises(FedQHDError, match="no longer the map"):
            load_policy(tmp_path / "x")
    finally:
        own_things.FREQUENCIES = before
    assert load_policy(tmp_path / "x").predict(make_env("CartPole-v1").reset(seed=0)[0])[0] in (0, 1)


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        ("own_things:too_long", r"gives the scaled state \[.*\] features of norm .*at most 1"),
        ("own_things:with_nan", r"gives the scaled state \[.*\] features of norm nan"),
        ("own_things:one_row", r"of shape \(7,\) for states of shape \(64, 4\), the first of which is \[\["),
        ("own_things:words", r"returns <U1 of shape"),
        ("own_things:moody", "different features each time"),
        ("own_things:among_others", "different features alone and in a batch"),
        ("own_things:fails", "cannot be made for n=4, D=64.*no such thing"),
        ("own_things:FREQUENCIES", "is a ndarray: a map"),
        ("own_things:wafes", "did you mean 'waves'"),
        ("torchhd.embeddings:Sinusoit", "did you mean 'Sinusoid'"),
        ("fuorier", "did you mean 'fourier'"),
        (["fourier", "symbolic"], "setting=homogeneous has one for all"),
        (
            RandomFourier.sample(3, 20, 1.0, np.random.default_rng(0)),
            "is for 3 state variables, but the environment has 4",
        ),
    ],
)
def test_what_is_no_encoder_is_refused_with_its_reason(encoder, says, tmp_path):
    given = {"encoder": encoder, "out": str(tmp_path / "x")}
    with pytest.raises(FedQHDError, match=says) as error:
        fedqhd.train(fedqhd.resolve(given, preset="plain", shared=TINY))
    assert "encoder=" in str(error.value)
    assert not (tmp_path / "x").exists()


def test_int8_needs_features_that_fit(tmp_path):
    with pytest.raises(FedQHDError, match="features=int8"):
        train(tiny(tmp_path / "x", env="CartPole-v1", encoder="own_things:waves", features="int8"))
