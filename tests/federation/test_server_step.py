"""The server step: how far the teacher moves, when it is lowered, and what stays the same."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import interrupt_after, tiny
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Reply
from fedqhd.federation import AnchorCompile, ParameterAverage, Stepped, TeacherAnchors
from fedqhd.federation.wrappers.server_step import TRUSTED, agreement, safe_step
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train
from worlds import CORRIDOR


def reply(client, weight=1.0, **arrays):
    return Reply(client, {k: np.array(v, np.float64) for k, v in arrays.items()}, weight, 1, (), "same", {})


def rounds(federation, *played):
    """Aggregate one round after the other and return the last state and all teachers."""
    state, teachers = federation.start(), []
    for replies in played:
        state, teacher = federation.aggregate(state, replies)
        teachers.append(teacher)
    return state, teachers


def test_agreement_by_hand():
    alike, across = [{"W": np.array([3.0, 4.0])}] * 2, [{"W": np.array([1.0, 0])}, {"W": np.array([0, 1.0])}]
    assert agreement(alike, [1, 1]) == 1
    assert agreement(across, [1, 1]) == pytest.approx(1 / 2)
    # The mean of (1, 0) with weight 3/4 and (0, 1) with weight 1/4 has the square 10/16, and each change has 1.
    assert agreement(across, [3, 1]) == pytest.approx(10 / 16)
    assert agreement([{"W": np.array([1j])}, {"W": np.array([-1j])}], [1, 1]) == 0
    assert agreement([{"W": np.zeros(2)}], [1]) == 1


@given(st.floats(0.1, 20), st.floats(1e-6, 1))
def test_a_step_is_lowered_but_never_raised_and_never_below_that_of_the_paper(size, agree):
    step = safe_step(size, agree)
    assert step <= size
    assert step == size or step == max(1.0, TRUSTED / agree)


def test_the_teacher_moves_by_beta_times_the_mean_change():
    """From W = (1, 1), the changes (2, 0) and (0, 4) have the mean (1, 2) and agree by half: 5 / (20 / 2)."""
    first, second = [reply(0, W=[1, 1]), reply(1, W=[1, 1])], [reply(0, W=[3, 1]), reply(1, W=[1, 5])]
    _, (start, end) = rounds(Stepped(ParameterAverage(), 1.25, 0.0, shared=True), first, second)
    assert start["W"].tolist() == [1, 1]
    assert end["W"].tolist() == [1 + 1.25 * 1, 1 + 1.25 * 2]
    # A step of 2 is lowered to 0.7 / 0.5.
    state, (_, end) = rounds(Stepped(ParameterAverage(), 2.0, 0.0, shared=True), first, second)
    assert end["W"] == pytest.approx([1 + 1.4, 1 + 2.8])
    assert state["server_step.used"] == pytest.approx(1.4)


def test_clients_with_the_same_change_move_the_teacher_no_further_than_that(caplog):
    """Five copies of one client are not five clients. The log says so once."""
    stepped = Stepped(ParameterAverage(), 5.0, 0.0, shared=True)
    with caplog.at_level(logging.INFO):
        _, teachers = rounds(stepped, *([reply(i, W=[float(k)]) for i in range(5)] for k in range(3)))
    assert [t["W"].tolist() for t in teachers] == [[0], [1], [2]]
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert caplog.records[0].getMessage() == (
        "server_step=5 is too large for changes that agree so much: it is lowered to 1.00 in this round "
        "(this is said once; rounds.jsonl has the step of each round)"
    )


def test_without_the_guard_they_would_have_overshot(monkeypatch):
    monkeypatch.setattr("fedqhd.federation.wrappers.server_step.TRUSTED", np.inf)
    stepped = Stepped(ParameterAverage(), 5.0, 0.0, shared=True)
    _, teachers = rounds(stepped, *([reply(i, W=[float(k)]) for i in range(5)] for k in range(2)))
    assert teachers[1]["W"].tolist() == [5]


def test_momentum_by_hand():
    """With mu = 0.5, v is 1, then 0.5 + 1, then 0.75 + 0, because the clients do not move in the last round."""
    stepped = Stepped(ParameterAverage(), 1.0, 0.5, shared=True)
    _, teachers = rounds(stepped, *([reply(0, W=[w])] for w in (0.0, 1.0, 2.0, 2.5)))
    assert [t["W"].item() for t in teachers] == [0.0, 1.0, 2.5, 3.25]


def test_at_anchors_the_change_is_counted_from_what_a_client_had_and_not_from_the_teacher():
    stepped = Stepped(AnchorCompile(np.zeros((2, 1)), 1), 1.25, 0.0, shared=False)
    replies = [
        reply(0, **{"Q": [[3], [1]], "before.Q": [[1], [1]]}),  # a change of (2, 0)
        reply(1, **{"Q": [[5], [9]], "before.Q": [[5], [5]]}),  # a change of (0, 4)
    ]
    state, teacher = stepped.aggregate({}, replies)
    assert teacher["Q"].tolist() == [[3 + 1.25 * 1], [3 + 1.25 * 2]]
    assert teacher.keys() == {"Q"}
    assert set(state) == {"server_step.used", "server_step.lowered"}


def test_replies_and_state_are_not_changed():
    stepped = Stepped(ParameterAverage(), 1.3, 0.5, shared=True)
    state, _ = stepped.aggregate({}, [reply(0, W=[1.0])])
    kept = {k: v.copy() for k, v in state.items()}
    played = [reply(0, W=[2.0]), reply(1, W=[5.0])]
    assert stepped.aggregate(state, played)[1]["W"].tobytes() == stepped.aggregate(state, played)[1]["W"].tobytes()
    assert [r.payload["W"].item() for r in played] == [2, 5]
    assert all(np.array_equal(kept[k], v) for k, v in state.items())


def test_moving_anchors_travel_as_before():
    inner = TeacherAnchors(AnchorCompile(np.zeros((1, 1)), 1), lambda anchors, Q, episodes: anchors + 1)
    state = Stepped(inner, 2.0, 0.0, shared=False).start()
    assert state["anchors"].tolist() == [[0]]


def settings(**given):
    return {"env": CORRIDOR, "episodes": 24, "round_episodes": 3, **given}


def result(folder):
    """The episodes of a run, and the models with which it ended."""
    models = (load_policy(folder, client).model.arrays() for client in range(2))
    return (folder / "metrics.jsonl").read_bytes(), [{k: v.tobytes() for k, v in m.items()} for m in models]


RUNS = [
    {"learner": "replay"},
    {"learner": "online", "server_momentum": 0.3},
    {"setting": "heterogeneous", "learner": "least-squares", "anchor_source": "teacher"},
    {"setting": "heterogeneous", "learner": "online", "anchor_source": "visited"},
    {"setting": "heterogeneous", "learner": "online", "server_momentum": 0.3, "uplink": "int8"},
    {"method": "fedavg-dqn", "learning_starts": 10},
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run.values())))
def test_a_run_with_a_server_step_has_the_same_bits_on_two_engines_and_when_it_resumes(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fedqhd.federation.wrappers.server_step.TRUSTED", 1.5)  # these clients agree almost entirely
    given = settings(server_step=2.0, **run)
    train(tiny(tmp_path / "whole", **given, engine="local"))
    train(tiny(tmp_path / "plain", **{**given, "server_step": 1.0, "server_momentum": 0.0}, engine="local"))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "parted", **given, engine="process"))
    train(tiny(tmp_path / "parted", **given, engine="process"), resume=True)
    whole, parted, plain = (result(tmp_path / name) for name in ("whole", "parted", "plain"))
    assert whole == parted
    assert whole != plain
    lines = (tmp_path / "whole" / "rounds.jsonl").read_text().splitlines()
    used = [json.loads(line).get("server_step") for line in lines]
    assert used[0] is None  # there was nothing before
    assert all(1 < step <= 2 for step in used[2:])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"server_step": 0.0}, "server_step"),
        ({"setting": "heterogeneous", "anchor_source": "teacher", "server_momentum": 0.5}, "different anchors"),
        ({"setting": "heterogeneous", "server_step": 2.0, "dp_clip": 1.0}, "at anchors this takes two"),
        ({"server_step": 2.0, "secure": "secagg+", "aggregate": "mean"}, "secure=off"),
        ({"method": "distilled-feddqn", "server_step": 2.0}, "does nothing"),
        ({"method": "independent-qhd", "server_step": 2.0}, "does nothing"),
    ],
)
def test_what_it_cannot_be_combined_with_is_said_in_a_sentence(given, sentence):
    with pytest.raises(FedQHDError, match=sentence):
        resolve({"env": "CartPole-v1", **given}, preset="plain")
