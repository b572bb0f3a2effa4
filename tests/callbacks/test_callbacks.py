"""Callbacks see a run, evaluate it and stop it, and never change its bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import interrupt_after, tiny
from fedqhd.agents.policy import load_policy
from fedqhd.callbacks import Callback, Evaluate, KeepBest, StopAt
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.callback import CALLBACKS, make_callback
from fedqhd.runs.folder import extend
from fedqhd.runs.run import train
from worlds import CORRIDOR

METHODS = [
    {"method": "fedqhd", "setting": "heterogeneous", "learner": "least-squares"},
    {"method": "fedqhd", "setting": "heterogeneous", "learner": "online"},
    {"method": "fedqhd", "learner": "replay", "features": "int8"},
    {"method": "independent-qhd"},
    {"method": "fedavg-dqn", "learning_starts": 10, "widths": [8]},
    {"method": "distilled-feddqn", "setting": "heterogeneous", "learning_starts": 10, "widths": [8, 16]},
    {"method": "oracle-qhd"},
    {"method": "fedqhd", "setting": "heterogeneous", "anchor_source": "visited"},
    {"method": "fedqhd", "setting": "heterogeneous", "attack": "noise", "liars": 0.5, "aggregate": "mean"},
]


class Diary(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.lines = []

    def on_start(self, training):
        self.lines.append(("start", training.rounds_done))

    def on_episode(self, training, episode):
        self.lines.append(("episode", episode.client, episode.episode))

    def on_round(self, training, replies):
        self.lines.append(("round", training.rounds_done, training.episodes_done, len(replies)))

    def on_evaluation(self, training, evaluation):
        self.lines.append(("evaluation", evaluation.round, evaluation.returns.shape))

    def on_training_end(self, training):
        self.lines.append(("training end",))

    def on_end(self, training, summary):
        self.lines.append(("end", summary["greedy_return"]))


def results(folder):
    models = [dict(np.load(path)) for path in sorted((folder / "models").glob("*.npz"))]
    return (folder / "metrics.jsonl").read_bytes(), models


def same_results(one, other):
    (lines, models), (lines_there, models_there) = results(one), results(other)
    assert lines == lines_there
    for a, b in zip(models, models_there, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize("settings", METHODS, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_evaluating_during_training_changes_no_bit(tmp_path, settings, engine):
    settings = {"env": CORRIDOR, "episodes": 12, **settings}
    train(tiny(tmp_path / "quiet", **settings))
    config = tiny(tmp_path / "watched", **settings, engine=engine)
    train(config, callbacks=[Evaluate(every=1, episodes=3), KeepBest()])
    same_results(tmp_path / "quiet", tmp_path / "watched")
    lines = [json.loads(line) for line in (tmp_path / "watched/evaluations.jsonl").read_text().splitlines()]
    assert [(line["round"], line["episode"]) for line in lines] == [(0, 4), (1, 8), (2, 12)]
    assert all(len(line["greedy_return_per_client"]) == config.clients for line in lines)


def test_an_evaluation_after_the_last_round_is_that_of_the_finished_models(tmp_path):
    """The models that the best evaluation saved are, here, those of the end: every bit of them."""
    train(tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", episodes=8), callbacks=[Evaluate(every=2), KeepBest()])
    last, best = (dict(np.load(folder / "models/client-1.npz")) for folder in (tmp_path, tmp_path / "best"))
    assert last.keys() == best.keys()
    assert all(np.array_equal(last[k], best[k]) for k in last)
    assert load_policy(tmp_path / "best", 1).predict([0.5])[0] in (0, 1)


def test_every_hook_is_called_in_order(tmp_path):
    diary = Diary()
    summary = train(tiny(tmp_path, env=CORRIDOR), callbacks=[diary, Evaluate(every=2, episodes=3)])
    rounds = [("round", 1, 4, 2), ("round", 2, 6, 2)]
    assert [line for line in diary.lines if line[0] == "round"] == rounds
    assert diary.lines[0] == ("start", 0)
    assert diary.lines[-3:] == [("evaluation", 1, (2, 3)), ("training end",), ("end", summary["greedy_return"])]
    assert {line[1:] for line in diary.lines if line[0] == "episode"} == {(c, e) for c in range(2) for e in range(6)}


def test_stopping_finishes_the_run_with_what_it_has(tmp_path):
    config = tiny(tmp_path, env=CORRIDOR, episodes=40, setting="heterogeneous")
    summary = train(config, callbacks=[StopAt(-1e9, last=8)])
    assert summary["episodes"] == 8
    assert "the mean return over the last 8 episodes" in summary["stopped"]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    own = [row["return"] for row in rows if row["client"] == 0]
    assert summary["final_return_per_client"][0] == pytest.approx(np.mean(own))
    # What was trained is what a run of that length trains.
    train(tiny(tmp_path / "short", env=CORRIDOR, episodes=8, setting="heterogeneous"))
    same_results(tmp_path, tmp_path / "short")


def test_a_goal_that_is_not_reached_stops_nothing(tmp_path):
    summary = train(tiny(tmp_path, env=CORRIDOR), callbacks=[StopAt(1e9), StopAt(1e9, greedy=True), Evaluate()])
    assert summary["episodes"] == 6
    assert "stopped" not in summary


def test_greedy_evaluations_may_decide(tmp_path):
    summary = train(tiny(tmp_path, env=CORRIDOR, episodes=40), callbacks=[Evaluate(2, 2), StopAt(-1e9, greedy=True)])
    assert summary["episodes"] == 8
    assert "of greedy episodes" in summary["stopped"]


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_a_killed_run_resumes_to_the_same_evaluations_and_the_same_stop(tmp_path, monkeypatch, killed_after):
    text = ["evaluate:every=1,episodes=2", "keep-best", "stop-at:goal=-1e9,last=16"]
    settings = {"env": CORRIDOR, "setting": "heterogeneous", "episodes": 40, "callbacks": text}
    whole = train(tiny(tmp_path / "whole", **settings))
    assert whole["episodes"] == 16
    cut = tiny(tmp_path / "cut", **settings)
    with monkeypatch.context() as patch:
        interrupt_after(patch, killed_after)
        with pytest.raises(KeyboardInterrupt):
            train(cut)
    summary = train(cut, resume=True)
    assert summary["stopped"] == whole["stopped"]
    same_results(tmp_path / "whole", tmp_path / "cut")
    one, other = ((tmp_path / name / "evaluations.jsonl").read_text() for name in ("whole", "cut"))
    assert one == other


@pytest.mark.parametrize("episodes", [8, 6])
def test_an_extended_run_has_the_bits_of_one_that_was_longer_from_the_start(tmp_path, episodes):
    """6 episodes end with a round of 2 that a longer run would not have had."""
    settings = {"env": CORRIDOR, "setting": "heterogeneous"}
    train(tiny(tmp_path / "long", **settings, episodes=14))
    train(tiny(tmp_path / "short", **settings, episodes=episodes))
    longer = extend(tmp_path / "short", 14 - episodes)
    assert longer.episodes == 14
    summary = train(longer, resume=True)
    assert summary["episodes"] == 14
    same_results(tmp_path / "long", tmp_path / "short")


def test_a_run_that_was_killed_after_its_summary_is_tidied_up(tmp_path):
    config = tiny(tmp_path, env=CORRIDOR, episodes=8)
    train(config)
    files = sorted(p.name for p in tmp_path.iterdir())
    (tmp_path / "training.lock").touch()
    (tmp_path / "checkpoint-000001.npz").touch()
    train(config, resume=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == files


def test_a_stopped_run_can_be_extended(tmp_path):
    train(tiny(tmp_path, env=CORRIDOR, episodes=40), callbacks=[StopAt(-1e9, last=4)])
    summary = train(extend(tmp_path, 36), resume=True)  # 4 and 36 are the 40 that were planned
    assert (summary["episodes"], "stopped" in summary) == (40, False)


def test_what_cannot_be_extended_is_refused_and_stays_as_it_is(tmp_path, monkeypatch):
    with pytest.raises(FedQHDError, match="holds no run to extend"):
        extend(tmp_path / "nowhere", 5)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "cut", env=CORRIDOR))
    with pytest.raises(FedQHDError, match="not finished: resume it first"):
        extend(tmp_path / "cut", 5)
    train(tiny(tmp_path / "done", env=CORRIDOR))
    with pytest.raises(FedQHDError, match="extend=0 is not possible"):
        extend(tmp_path / "done", 0)
    (tmp_path / "done/checkpoint-000001.npz").unlink()
    with pytest.raises(FedQHDError, match="no checkpoint to continue from"):
        extend(tmp_path / "done", 5)
    assert (tmp_path / "done/summary.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evalute", "callbacks='evalute' is unknown .did you mean 'evaluate'"),
        ("evaluate:evry=2", "evaluate has no argument 'evry' .did you mean 'every'.*every, episodes, seed"),
        ("evaluate:every=0", "every=0 is not possible"),
        ("evaluate:every=often", "every=often is not possible"),
        ("stop-at", "callbacks='stop-at' is not possible: .*goal"),
        ("nowhere:Mine", "callbacks='nowhere:Mine' cannot be loaded"),
        ("json:dumps", "a class that inherits from fedqhd.runs.callback.Callback is needed"),
    ],
)
def test_mistakes_are_named_before_anything_is_played(tmp_path, text, message):
    with pytest.raises(FedQHDError, match=message):
        train(tiny(tmp_path / "run", callbacks=[text]))
    assert not (tmp_path / "run").exists()


def test_names_and_arguments_make_callbacks():
    assert make_callback("evaluate:every=5,episodes=10") == Evaluate(5, 10)
    assert make_callback("stop-at:goal=475.5,greedy=true") == StopAt(475.5, greedy=True)
    assert isinstance(make_callback("test_callbacks:Diary"), Diary)
    assert set(CALLBACKS.names) == {
        "evaluate", "keep-best", "mlflow", "notebook", "stop-at", "tensorboard", "wandb"
    }  # fmt: skip
    assert all(kind.name in CALLBACKS.names for kind in CALLBACKS.all())


@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize("settings", METHODS, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_evaluating_in_the_middle_of_episodes_changes_no_bit(tmp_path, settings, engine):
    """An evaluation plays in the environments of the clients, whose open episodes are then played again."""
    settings = {"env": CORRIDOR, "steps": 75, "round_steps": 29, **settings}
    train(tiny(tmp_path / "quiet", **settings))
    config = tiny(tmp_path / "watched", **settings, engine=engine)
    diary = Diary()
    train(config, callbacks=[Evaluate(every=1, episodes=3), KeepBest(), diary])
    same_results(tmp_path / "quiet", tmp_path / "watched")
    lines = [json.loads(line) for line in (tmp_path / "watched/evaluations.jsonl").read_text().splitlines()]
    assert [(line["round"], line["step"]) for line in lines] == [(0, 29), (1, 58), (2, 75)]
    ended = [line[2] for line in diary.lines if line[0] == "episode"]
    assert lines[-1]["episode"] == max(ended) + 1  # the most episodes that a client has finished


def test_a_run_by_steps_stops_when_every_client_has_played_well_for_long_enough(tmp_path):
    """By hand: MountainCar pays -200 an episode, and with 130 steps a round the second one ends in round 3."""
    settings = {"env": "MountainCar-v0", "learner": "online", "eta": 1e-6, "steps": 1000, "round_steps": 130}
    summary = train(tiny(tmp_path, **settings), callbacks=[StopAt(-200, last=2)])
    assert (summary["steps"], summary["episodes"]) == (4 * 130, 2)
    assert "over the last 2 episodes, -200.0, has reached -200" in summary["stopped"]


def test_a_resumed_run_by_steps_knows_how_many_episodes_have_ended(tmp_path, monkeypatch):
    settings = {"env": CORRIDOR, "steps": 75, "round_steps": 29, "callbacks": ["evaluate"]}
    train(tiny(tmp_path / "whole", **settings))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "parts", **settings))
    train(tiny(tmp_path / "parts", **settings), resume=True)
    whole, parts = ((tmp_path / name / "evaluations.jsonl").read_text() for name in ("whole", "parts"))
    assert whole == parts
    assert json.loads((tmp_path / "parts/summary.json").read_text())["episodes"] > 0
