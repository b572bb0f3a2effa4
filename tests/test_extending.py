"""Methods and learners of the user's own have the infrastructure of ours, and are told what they lack."""

from __future__ import annotations

import pytest

import fedqhd
from conftest import interrupt_after, tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.config import load_config, resolve
from fedqhd.runs.run import train
from own_methods import Momentum, Normalised

OWN = {
    "method": "own_methods:Momentum", "learner": "own_methods:Normalised", "beta": 0.3, "mu": 0.2, "episodes": 8,
    "round_episodes": 2,
}  # fmt: skip


def metrics(folder):
    return (folder / "metrics.jsonl").read_bytes()


def models(folder):
    return [path.read_bytes() for path in sorted((folder / "models").glob("*.npz"))]


def test_settings_of_ones_own_are_settings(tmp_path):
    config = tiny(tmp_path / "x", **OWN)
    assert (config.beta, config.mu) == (0.3, 0.2)
    train(config)
    assert load_config(tmp_path / "x" / "config.toml") == config
    assert "eta" not in config  # that of other learners
    for given, says in (
        ({**OWN, "beta": 1.0}, "beta=1.0 is not possible: it must be at least 0 and below 1"),
        ({"mu": 0.1, "learner": "online"}, "unknown setting 'mu'"),
        ({**OWN, "eta": 0.1}, "eta=0.1 does nothing for method=own_methods:Momentum"),
        ({**OWN, "setting": "heterogeneous"}, "setting=heterogeneous is not possible: .* runs with homogeneous"),
    ):
        with pytest.raises(FedQHDError, match=says):
            resolve(given)


def test_momentum_does_something_and_classes_can_be_given_from_python(tmp_path):
    summary = fedqhd.train(tiny(tmp_path / "a", **{**OWN, "method": Momentum, "learner": Normalised}))
    assert (summary["method"], summary["learner"]) == ("own_methods:Momentum", "own_methods:Normalised")
    assert summary["protocol"] == "WithMomentum"
    train(tiny(tmp_path / "b", **OWN))
    train(tiny(tmp_path / "c", **{**OWN, "beta": 0.0}))
    a, b, c = (models(tmp_path / name) for name in "abc")
    assert a == b != c


def test_they_live_in_processes_and_resume_to_the_bit(tmp_path, monkeypatch):
    train(tiny(tmp_path / "whole", **OWN))
    train(tiny(tmp_path / "process", engine="process", **OWN))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "cut", **OWN))
    train(tiny(tmp_path / "cut", **OWN), resume=True)
    for name in ("process", "cut"):
        assert metrics(tmp_path / name) == metrics(tmp_path / "whole")
        assert models(tmp_path / name) == models(tmp_path / "whole")
    assert fedqhd.evaluate(tmp_path / "cut", 2).shape == (2, 2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "own_methods:Deaf"}, r"method='own_methods:Deaf' makes a Mute that lacks the method report\(\)"),
        ({"method": "own_methods:Silent"}, r"method='own_methods:Silent' has no federation\(terms, public\)"),
        ({"method": "own_methods:not_a_class"}, "method='own_methods:not_a_class' is 3: a class that inherits from"),
        ({"method": "own_methods:Momentun"}, "has no 'Momentun' .did you mean 'Momentum'"),
        ({"learner": "own_methods:Momentum"}, "learner='own_methods:Momentum' is .*a class that inherits from"),
        ({"learner": "own_methods:Unready"}, r"learner='unready' lacks the method q\(\) of"),
        ({"agents": ["qhd", "nowhere:Agent"], "setting": "heterogeneous"}, "module 'nowhere' cannot be found"),
    ],
)
def test_what_breaks_the_protocol_is_told_which_part_before_training(settings, says, tmp_path):
    with pytest.raises(FedQHDError, match=says):
        train(tiny(tmp_path / "x", **settings))
    assert not (tmp_path / "x").exists()
