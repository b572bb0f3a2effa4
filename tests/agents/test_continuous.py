"""A learner with continuous actions, as docs/extending.md has it, with all of the infrastructure."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import fedqhd
from conftest import ROOT, interrupt_after, tiny
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_checkpoint
from fedqhd.export import export
from fedqhd.runs.run import train

RUN = {
    "env": "MountainCarContinuous-v0", "learner": "climb:Climb", "episodes": 8, "round_episodes": 2,
    "eval_episodes": 1, "seed": 4,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def climb(tmp_path_factory):
    """The module of the documentation, where Python finds it."""
    folder = tmp_path_factory.mktemp("climb")
    text = (ROOT / "docs" / "extending.md").read_text()
    (folder / "climb.py").write_text(re.search(r"^```python\n(# climb\.py\n.*?)^```", text, re.S | re.M)[1])
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("continuous")
    return folder, train(tiny(folder / "run", **RUN))


def files(folder):
    return (folder / "metrics.jsonl").read_bytes(), [p.read_bytes() for p in sorted((folder / "models").glob("*.npz"))]


def test_a_new_learner_is_one_file_and_clients_average_what_it_learns(run):
    folder, summary = run
    assert summary["learner"] == "climb:Climb"
    assert summary["protocol"] == "ParameterAverage"
    W = [load_policy(folder / "run", i).model.W for i in range(2)]
    assert np.array_equal(*W)
    assert np.abs(W[0]).max() > 0


def test_processes_and_a_resumed_run_give_the_same_bits(run, tmp_path, monkeypatch):
    whole = files(run[0] / "run")
    train(tiny(tmp_path / "process", engine="process", **RUN))
    assert files(tmp_path / "process") == whole
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "cut", **RUN))
    train(tiny(tmp_path / "cut", **RUN), resume=True)
    assert files(tmp_path / "cut") == whole


def test_a_run_by_steps_plays_vectors_again_when_it_is_resumed(tmp_path, monkeypatch):
    """An episode has up to 999 steps, so that most rounds end in the middle of one."""
    by_steps = {**RUN, "steps": 2500, "round_steps": 420}
    train(tiny(tmp_path / "whole", **by_steps))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "cut", **by_steps))
    saved = read_checkpoint(tmp_path / "cut").arrays["0/actions"]
    assert saved.shape == (840, 1)
    assert saved.dtype == np.float32
    train(tiny(tmp_path / "cut", **by_steps), resume=True)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_the_policy_is_one_of_vectors_within_their_bounds(run):
    policy = load_policy(run[0] / "run", 1)
    one, _ = policy.predict(np.array([-0.5, 0.01]))
    assert one.shape == (1,)
    assert one.dtype == np.float32
    z = policy.scaler(np.array([[-0.5, 0.01]]))
    assert one == pytest.approx(np.clip(z @ policy.model.W, -1, 1)[0], rel=1e-6)
    batch = np.random.default_rng(0).uniform([-1.2, -0.07], [0.6, 0.07], (50, 2))
    policy.epsilon = 1.0
    random, _ = policy.predict(batch, deterministic=False)
    assert random.shape == (50, 1)
    assert np.abs(random).max() <= 1
    assert len(np.unique(random)) == 50
    greedy, _ = policy.predict(batch)
    assert not np.array_equal(greedy, random)


def test_it_is_evaluated_here_and_by_stable_baselines3(run):
    assert fedqhd.evaluate(run[0] / "run", 1).shape == (2, 1)
    policy = load_policy(run[0] / "run")
    mean, _ = evaluate_policy(policy, Monitor(policy.make_env()), n_eval_episodes=1)
    assert np.isfinite(mean)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"env": "CartPole-v1"}, "env='CartPole-v1' has discrete actions, but learner=climb learns continuous ones"),
        ({"learner": "online"}, "has continuous actions, but learner=online learns discrete ones"),
        ({"setting": "heterogeneous"}, r"learner='climb' lacks the method q\(\)"),
        ({"learner": "unalike:Unalike"}, "learner=unalike:Unalike is not possible: clients with continuous actions"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(settings, says, tmp_path, monkeypatch):
    (tmp_path / "unalike.py").write_text(
        "from climb import Climb\n\n\nclass Unalike(Climb):\n"
        "    def fingerprint(self):\n        return str(self.generator.bit_generator.state)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FedQHDError, match=says):
        train(tiny(tmp_path / "x", **{**RUN, **settings}))
    assert not (tmp_path / "x").exists()


def test_what_has_no_values_says_so(run, tmp_path):
    policy = load_policy(run[0] / "run")
    with pytest.raises(FedQHDError, match="the model Linear has no Q-values"):
        policy.q(np.zeros((1, 2)))
    with pytest.raises(FedQHDError, match="format=c cannot express a model of the class Linear"):
        export(run[0] / "run", 0, "c", tmp_path / "p.h")
