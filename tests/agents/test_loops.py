"""Episodes in a kernel and episodes in Python have the same bits, and fail with the same words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import interrupt_after, tiny
from fedqhd.agents import OnlineQHD, qhd
from fedqhd.agents.loops import plays_in_kernel, twin_for
from fedqhd.agents.policy import greedy_returns, load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays
from fedqhd.core.protocols import Quota
from fedqhd.envs.make import make_env
from fedqhd.runs.build import build
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

RUNS = {
    "online": {"learner": "online"},
    "online, complex": {"learner": "online", "encoder": ["complex"], "env": "Acrobot-v1", "episodes": 2},
    "online, symbolic": {"learner": "online", "encoder": ["symbolic"]},
    "replay, int8": {"learner": "replay", "batch_size": 8, "replay_size": 100},
    "replay, float32": {"learner": "replay", "features": "float32", "update_every": 3, "env": "MountainCar-v0"},
    "replay, recomputed": {"learner": "replay", "features": "recompute", "target_every": 2},
    "least squares": {"learner": "least-squares", "replay_size": 120},
    "least squares, precision": {"learner": "least-squares", "weights": "precision", "setting": "heterogeneous"},
    "network": {"method": "fedavg-dqn", "learning_starts": 20, "batch_size": 8, "widths": [16], "target_steps": 7},
    "network, held": {"method": "distilled-feddqn", "learning_starts": 20, "widths": [16], "hold": 3,
                      "target_tau": 0.3, "gradient_steps": 2, "update_every": 3, "setting": "heterogeneous"},
    "visited anchors": {"learner": "online", "setting": "heterogeneous", "anchor_source": "visited"},
    "repeated actions": {"learner": "replay", "env": "MountainCar-v0", "action_repeat": 3},
    "different worlds": {"learner": "online", "dynamics": ["length=0.3:1"]},
    "oracle": {"method": "oracle-qhd", "learner": "least-squares", "dynamics": ["length=0.3:1"]},
    "oracle, cut off": {"method": "oracle-qhd", "learner": "least-squares", "env": "MountainCar-v0"},
}  # fmt: skip


def outcome(folder, loop, **settings):
    """Train, and return all that a run computes: its episodes, its weights and its greedy returns."""
    summary = train(tiny(folder / loop, loop=loop, **settings))
    assert summary["loop"] == loop
    weights = [read_arrays(f)[0] for f in sorted((folder / loop / "models").glob("*.npz"))]
    greedy = summary["greedy_return_per_client"], summary.get("greedy_return_nominal")
    return (folder / loop / "metrics.jsonl").read_text(), weights, greedy, summary["updates"]


@pytest.mark.parametrize("name", RUNS)
def test_both_loops_have_the_same_bits(name, tmp_path):
    kernel, python = (outcome(tmp_path, loop, **RUNS[name]) for loop in ("compiled", "python"))
    assert kernel[0] == python[0]
    for one, other in zip(kernel[1], python[1], strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[k], other[k]) for k in one)
    assert kernel[2:] == python[2:]


def test_another_seed_gives_other_episodes(tmp_path):
    """A negative control of the test before."""
    first, second = (outcome(tmp_path / str(seed), "compiled", learner="online", seed=seed)[0] for seed in (0, 1))
    assert first != second


def test_a_run_may_be_resumed_with_the_other_loop(tmp_path, monkeypatch):
    whole = outcome(tmp_path / "whole", "compiled", learner="replay")
    config = tiny(tmp_path / "part", learner="replay", loop="python")
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    train(config.replace(loop="compiled"), resume=True)
    assert (tmp_path / "part" / "metrics.jsonl").read_text() == whole[0]


def test_the_kernel_is_chosen_without_being_asked_for(tmp_path):
    assert train(tiny(tmp_path / "a", learner="online"))["loop"] == "compiled"
    assert train(tiny(tmp_path / "b", learner="online", env="LunarLander-v3", episodes=1))["loop"] == "python"
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["split_seconds"]["episodes"] > 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"env": "LunarLander-v3"}, "LunarLander has no compiled step"),
        ({"learner": "least-squares", "explore": "bonus"}, "no kernel plays LeastSquaresQHD with these settings"),
    ],
)
def test_a_kernel_that_does_not_exist_is_refused_in_a_sentence(settings, reason, tmp_path):
    with pytest.raises(FedQHDError, match=f"loop=compiled is not possible: {reason}; leave it out or give loop=python"):
        build(tiny(tmp_path, loop="compiled", **settings))
    assert not list(tmp_path.iterdir())


class Timid(OnlineQHD):
    """A user's learner that changes how one of ours learns."""

    def observe(self, t):
        super().observe(t._replace(r=t.r / 2))


def test_a_subclass_that_learns_in_another_way_is_played_in_python(tmp_path):
    clients, _ = build(tiny(tmp_path, learner="online"))
    agent = clients[0].agent
    assert plays_in_kernel(agent)
    agent.__class__ = Timid
    assert not plays_in_kernel(agent)
    agent.__class__ = OnlineQHD
    agent.observe = lambda t: None
    assert not plays_in_kernel(agent)


@pytest.mark.parametrize("loop", ["compiled", "python"])
def test_learning_that_diverges_ends_with_the_same_words(loop, tmp_path):
    config = tiny(tmp_path, learner="online", eta=1e6, step="plain", loop=loop, episodes=50)
    with pytest.raises(FedQHDError, match=r"client 0, episode \d+: .*not finite|client 0, episode \d+: the TD error"):
        train(config)


def test_the_words_are_the_same_in_both_loops(tmp_path):
    words = []
    for loop in ("compiled", "python"):
        with pytest.raises(FedQHDError) as error:
            train(tiny(tmp_path / loop, learner="online", eta=1e6, step="plain", loop=loop, episodes=50))
        words.append(str(error.value))
    assert words[0] == words[1]


def test_weights_that_are_not_finite_are_named(tmp_path):
    clients, _ = build(tiny(tmp_path, learner="online"))
    clients[0].agent.W[:] = np.nan
    with pytest.raises(FedQHDError, match=r"client 0, episode 0: Q\(s, .\) = \[nan, nan\] is not finite"):
        clients[0].play(Quota(1))


def test_greedy_episodes_have_the_same_returns_in_both_loops(tmp_path):
    config = tiny(tmp_path / "run", learner="online", episodes=20)
    train(config)
    policy, env = load_policy(config.folder), make_env("CartPole-v1")
    assert twin_for(policy.model, env, policy.scaler) is not None
    kernel, python = (greedy_returns(policy, env, 10, 0, 0, compiled=compiled) for compiled in (True, False))
    assert np.array_equal(kernel, python)
    assert len(set(kernel)) > 1  # otherwise all of them might have ended at the time limit


def test_the_loop_is_no_part_of_what_a_run_is(tmp_path):
    """Runs with both loops belong to one group and can be resumed by each other."""
    from fedqhd.runs.folder import identity

    one, other = (resolve({"out": str(tmp_path), "loop": loop}) for loop in ("python", "compiled"))
    assert identity(one) == identity(other)


def test_a_large_fleet_forgets_its_anchors_and_has_the_same_bits(tmp_path, monkeypatch):
    """It computes their features and factors again in every round instead of keeping them."""
    settings = {"learner": "online", "setting": "heterogeneous", "compile": "warm-start"}
    kept = outcome(tmp_path / "kept", "compiled", **settings)
    monkeypatch.setattr(qhd, "FLEET", 1)
    monkeypatch.setattr(qhd, "KEPT", 0)
    clients, _ = build(tiny(tmp_path / "x", **settings))
    clients[0].agent.q(np.zeros((3, 4), np.float32))
    assert clients[0].agent._X.size == 0
    forgotten = outcome(tmp_path / "forgotten", "compiled", **settings)
    assert forgotten[0] == kept[0]
    assert forgotten[2:] == kept[2:]


def test_clients_with_one_encoder_share_it(tmp_path):
    clients, _ = build(tiny(tmp_path, learner="online", clients=3))
    assert len({id(c.agent.encoder) for c in clients}) == 1
    assert len({id(c.agent.W) for c in clients}) == 3
    others, _ = build(tiny(tmp_path, learner="online", clients=3, setting="heterogeneous"))
    assert len({c.agent.encoder.fingerprint() for c in others}) == 3
