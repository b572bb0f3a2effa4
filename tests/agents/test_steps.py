"""Rounds of steps: exact counts, and the bits of a run do not depend on where its episodes are interrupted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import interrupt_after, tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, read_checkpoint
from fedqhd.core.protocols import Quota
from fedqhd.runs.build import build
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

DIFFERENT = {"setting": "heterogeneous", "learner": "online"}
RUNS = {
    "online": {"learner": "online"},
    "replay, int8": {"learner": "replay", "batch_size": 8, "replay_size": 100},
    "replay, recomputed": {"learner": "replay", "features": "recompute", "env": "MountainCar-v0"},
    "least squares": {"learner": "least-squares", "replay_size": 120},
    "least squares, precision": {"learner": "least-squares", "weights": "precision", "setting": "heterogeneous"},
    "least squares, statistics": {"learner": "least-squares", "exchange": "statistics", "replay_size": 100},
    "network, held": {"method": "distilled-feddqn", "learning_starts": 20, "widths": [16], "hold": 3,
                      "gradient_steps": 2, "update_every": 3, "setting": "heterogeneous"},
    "visited anchors": {**DIFFERENT, "anchor_source": "visited"},
    "teacher anchors": {**DIFFERENT, "anchor_source": "teacher", "env": "MountainCar-v0"},
    "private": {**DIFFERENT, "dp_clip": 1.0, "dp_noise": 0.5, "env": "MountainCar-v0"},
    "attacked": {**DIFFERENT, "attack": "drift", "liars": 0.4, "env": "MountainCar-v0", "clients": 3},
    "repeated actions": {"learner": "replay", "env": "MountainCar-v0", "action_repeat": 3},
    "oracle": {"method": "oracle-qhd", "learner": "online", "dynamics": ["length=0.3:1"]},
    "evaluated": {"learner": "replay", "callbacks": ["evaluate:every=2,episodes=2"]},
}  # fmt: skip
PYTHON_ONLY = {"least squares, bonus": {"learner": "least-squares", "explore": "bonus"}}
BY_STEPS = {"steps": 290, "round_steps": 37}


def outcome(folder):
    """All that a run computes: its episodes, its models, its last checkpoint and most of its summary."""
    summary = json.loads((folder / "summary.json").read_text())
    clocks = ("wall_seconds", "cpu_seconds", "split_seconds", "loop")
    found = read_checkpoint(folder)
    models = {f.name: read_arrays(f)[0] for f in sorted((folder / "models").glob("*.npz"))}
    arrays = {f"{file}/{k}": v for file, named in models.items() for k, v in named.items()} | dict(found.arrays)
    return (folder / "metrics.jsonl").read_text(), {k: v for k, v in summary.items() if k not in clocks}, arrays


def assert_same_arrays(one, other):
    assert one.keys() == other.keys()
    assert [k for k, v in one.items() if not np.array_equal(v, other[k])] == []


def assert_same(one, other):
    assert one[:2] == other[:2]
    assert_same_arrays(one[2], other[2])


def in_parts(monkeypatch, config, *rounds):
    """Train a run that is interrupted in these rounds, whose checkpoints are not written, and resumed."""
    for k in rounds:
        with monkeypatch.context() as patch:
            interrupt_after(patch, k)
            with pytest.raises(KeyboardInterrupt):
                train(config, resume=True)
    train(config, resume=True)


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_has_the_same_bits_in_both_loops(name, tmp_path, monkeypatch):
    settings = {**RUNS[name], **BY_STEPS}
    whole = {}
    for loop in ("compiled", "python"):
        train(tiny(tmp_path / loop, loop=loop, **settings))
        whole[loop] = outcome(tmp_path / loop)
        in_parts(monkeypatch, tiny(tmp_path / f"{loop} in parts", loop=loop, **settings), 3, 6)
        assert_same(whole[loop], outcome(tmp_path / f"{loop} in parts"))
    assert_same(whole["compiled"], whole["python"])


@pytest.mark.parametrize("name", PYTHON_ONLY)
def test_a_resumed_run_has_the_same_bits(name, tmp_path, monkeypatch):
    settings = {**PYTHON_ONLY[name], **BY_STEPS}
    train(tiny(tmp_path / "whole", **settings))
    in_parts(monkeypatch, tiny(tmp_path / "parts", **settings), 3, 6)
    assert_same(outcome(tmp_path / "whole"), outcome(tmp_path / "parts"))


def test_a_run_may_be_resumed_with_the_other_loop_in_the_middle_of_an_episode(tmp_path, monkeypatch):
    train(tiny(tmp_path / "whole", learner="replay", loop="compiled", **BY_STEPS))
    config = tiny(tmp_path / "part", learner="replay", loop="python", **BY_STEPS)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    train(config.replace(loop="compiled"), resume=True)
    assert_same(outcome(tmp_path / "whole"), outcome(tmp_path / "part"))


@pytest.mark.parametrize("loop", ["compiled", "python"])
@pytest.mark.parametrize("name", [*list(RUNS)[:7], "repeated actions", "oracle"])
def test_steps_learn_what_episodes_learn(name, loop, tmp_path):
    """The weights after the same transitions are the same, in one go or a few steps at a time, and so are the records.

    Nothing is installed in between, which is all that rounds would change.
    """
    config = tiny(tmp_path, loop=loop, **RUNS[name])
    ((by_episodes, *_), _), ((at_once, *_), _), ((in_parts, *_), _) = (build(config) for _ in range(3))
    sites = len(by_episodes.envs)
    records = by_episodes.play(Quota(3))
    steps = sum(e.length for e in records)
    whole, over = divmod(steps, sites)
    assert at_once.play(Quota(steps=whole + bool(over)))[: len(records)] == records
    if not over:
        assert at_once.open_steps == 0
        assert_same_arrays(by_episodes.agent.state(), at_once.agent.state())
    played = []
    while len(played) < len(records):
        played += in_parts.play(Quota(steps=1))
        if in_parts.open_steps % 5 == 4:  # as after a report that was interrupted
            in_parts.restore(in_parts.state())
    assert tuple(played) == records
    assert_same_arrays(by_episodes.agent.state(), in_parts.agent.state())


def test_a_golden_case_by_hand(tmp_path):
    """MountainCar without a goal in reach: episodes of 200 steps, 3 rounds of 150 steps and one of 50.

    Round 0 ends in the middle of episode 0, round 1 ends 100 steps into episode 1, round 2 ends 50 steps into
    episode 2, and the last round leaves it open after 100 steps.
    """
    config = tiny(tmp_path, env="MountainCar-v0", learner="online", clients=1, steps=500, round_steps=150, eta=1e-6)
    summary = train(config)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["round"], row["episode"], row["length"], row["return"]) for row in rows] == [
        (1, 0, 200, -200.0), (2, 1, 200, -200.0)
    ]  # fmt: skip
    assert (summary["steps"], summary["episodes"], summary["env_steps"]) == (500, 2, 500)
    assert summary["final_return"] == -200.0
    found = read_checkpoint(tmp_path)
    assert found.about["rounds_done"] == 3  # a run can be extended from its last full round
    assert len(found.arrays["0/actions"]) == 50
    assert found.arrays["0/open"][0] == 0


def test_a_run_in_which_no_episode_ends_says_so(tmp_path):
    summary = train(tiny(tmp_path, env="MountainCar-v0", learner="online", steps=90, round_steps=40))
    assert (summary["episodes"], summary["env_steps"]) == (0, 180)
    assert np.isnan(summary["final_return"])
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_an_action_may_overshoot_the_steps_of_a_round(tmp_path):
    """Four steps an action: a round of 150 steps ends with its 38th action, after 152 steps, and the next one begins
    to count anew."""
    (client, *_), world = build(tiny(tmp_path, env="MountainCar-v0", learner="online", action_repeat=4))
    steps = [client.round(world.federation, None, Quota(steps=150)).steps for _ in range(3)]
    assert steps == [152, 152, 152]
    assert client.open_steps == 3 * 152 - 2 * 200


def test_an_environment_that_counts_otherwise_is_refused(tmp_path):
    (client, *_), _ = build(tiny(tmp_path, learner="online", loop="python"))
    step = client.envs[0].step

    def counted(action):
        *others, info = step(action)
        return *others, {**info, "env_steps": 4}

    client.envs[0].step = counted
    assert client.play(Quota(1))  # a round of episodes does not mind
    with pytest.raises(FedQHDError, match=r"counts 4 steps for one action .* must be 1: give episodes"):
        client.play(Quota(steps=10))


def test_without_its_open_episode_a_client_would_play_another_one(tmp_path):
    """A negative control: what is saved of an open episode matters."""
    config = tiny(tmp_path, learner="online")
    ((client, *_), _), ((whole, *_), _), ((other, *_), _) = (build(config) for _ in range(3))
    client.play(Quota(steps=5))
    saved = client.state()
    whole.restore(saved)
    other.restore({name: value for name, value in saved.items() if name not in ("open", "actions")})
    records = [one.play(Quota(1)) for one in (client, whole, other)]
    assert records[0] == records[1] != records[2]
    assert whole.open_steps == 0


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ({"open": np.array([2.0, 0.5])}, "the turn of environment 2.0"),
        ({"open": np.array([0.0])}, "not enough values"),
        ({"actions": np.array([0, 1, 2])}, "are not in Discrete"),
        ({"actions": np.array([0.0, 1.0])}, "are not in Discrete"),
        ({"actions": np.zeros((2, 2), int)}, "are not in Discrete"),
        ({"actions": np.ones(500, int)}, "ended after"),
    ],
)
def test_an_open_episode_that_cannot_be_is_refused(forged, words, tmp_path):
    (client, *_), _ = build(tiny(tmp_path, learner="online"))
    client.play(Quota(steps=5))
    saved = client.state()
    client.restore(saved)
    with pytest.raises(FedQHDError, match=words):
        client.restore({**saved, **forged})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": 100}, "steps=100 is not possible: give round_steps too"),
        ({"round_steps": 10}, "round_steps=10 is not possible: give steps too"),
        ({"steps": 100, "round_steps": 10, "episodes": 5}, "episodes=5 does nothing beside steps=100: give either"),
        ({"steps": 100, "round_steps": 10, "round_episodes": 5}, "round_episodes=5 does nothing beside steps=100"),
        ({"steps": -1, "round_steps": 10}, "steps=-1 is not possible: it must be at least 0"),
    ],
)
def test_impossible_lengths_are_refused_in_a_sentence(given, words):
    with pytest.raises(FedQHDError, match=words):
        resolve(given)


def test_episodes_of_presets_give_way_to_steps_and_zeros_to_episodes(caplog):
    c = resolve({"steps": 100, "round_steps": 30})
    assert "episodes" not in c
    assert "round_episodes" not in c
    assert not caplog.records
    by_episodes = resolve({"steps": 0, "round_steps": 0, "episodes": 7}, preset="plain", shared=c.values)
    assert by_episodes.episodes == 7
    assert "steps" not in by_episodes


def test_a_finished_run_goes_on_with_its_open_episode(tmp_path):
    """With the bits of a run that was longer from the start; a short last round is played again in its full length."""
    from fedqhd.runs.folder import extend

    train(tiny(tmp_path / "long", learner="replay", steps=200, round_steps=37))
    train(tiny(tmp_path / "short", learner="replay", steps=100, round_steps=37))
    train(extend(tmp_path / "short", 100), resume=True)
    assert_same(outcome(tmp_path / "long"), outcome(tmp_path / "short"))


def test_a_run_by_episodes_is_not_resumed_by_steps(tmp_path, monkeypatch):
    config = tiny(tmp_path, learner="online")
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    with pytest.raises(FedQHDError, match="steps=50 differs from the run to resume, which has 0"):
        train(tiny(tmp_path, learner="online", steps=50, round_steps=10), resume=True)
