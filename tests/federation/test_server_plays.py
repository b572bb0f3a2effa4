"""A server that plays its teachers: which it takes back, what it counts, and its verdict for simulated liars."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from test_server_rules import LATER, values

from fedqhd.core.protocols import Expected
from fedqhd.federation import AnchorCompile, ParameterAverage, Rounded, Server, TeacherAnchors
from fedqhd.federation.aggregate import MEAN, Rule
from fedqhd.federation.play import Played


class Ladder:
    """A stage on which values of one number earn that number, in three episodes of four steps."""

    def __init__(self):
        self.asked = []

    def play(self, anchors, Q, k):
        self.asked.append((float(anchors[0, 0]), float(Q[0, 0]), k))
        return Played(Q[0, 0] + np.array([0.0, 0.2, 0.1]), 12)


FOLLOWING = TeacherAnchors(AnchorCompile(np.full((1, 1), 7.0), 1), lambda anchors, Q, episodes: anchors + 1)
"""Anchors 7, then 8, then 9."""


def after_one_round(federation=FOLLOWING, **options):
    server = Server(stage=Ladder(), rule=MEAN, **options)
    state, teacher = server.aggregate(0, federation, federation.start(), None, values(4.0, 6.0))
    assert server.stage.asked == []  # the rule plays no replies, and there is no teacher to compare with
    return server, state, teacher


@pytest.mark.parametrize("federation", [FOLLOWING, Rounded(FOLLOWING, "float32")])
def test_a_teacher_that_plays_clearly_worse_is_taken_back(federation, caplog):
    server, state, teacher = after_one_round(federation)
    again = server.aggregate(1, federation, state, teacher, values(2.0, 3.0))
    assert again[0] is state
    assert again[1] is teacher
    assert server.used_weights == {}
    # The last teacher at its own anchors, the next one at the anchors that followed it.
    assert server.stage.asked == [(7.0, 5.0, 1), (8.0, 2.5, 1)]
    assert server.counts == {"played episodes": 6, "played steps": 24, "taken back": 1}
    assert caplog.messages == [
        "round 1: the teacher is taken back: its return of 2.6 in the server's environment is clearly worse than the "
        f"5.1 of the last one{LATER}"
    ]


def test_a_teacher_that_plays_as_well_is_kept_and_equal_values_are_counted_once():
    server, state, teacher = after_one_round()
    state, teacher = server.aggregate(1, FOLLOWING, state, teacher, values(3.0, 7.0))
    assert (state["anchors"], teacher["Q"], server.used_weights) == (9.0, 5.0, {0: 1.0, 1: 1.0})
    assert server.counts == {"played episodes": 3, "played steps": 12}
    state, teacher = server.aggregate(2, FOLLOWING, state, teacher, values(8.0, 8.0))
    assert teacher["Q"] == 8.0
    assert server.stage.asked[2:] == [(8.0, 5.0, 2), (9.0, 8.0, 2)]
    assert server.counts == {"played episodes": 9, "played steps": 36}


def test_without_a_stage_or_without_anchors_nothing_is_played():
    server = Server(rule=MEAN)
    state, teacher = server.aggregate(0, FOLLOWING, FOLLOWING.start(), None, values(5.0))
    assert server.aggregate(1, FOLLOWING, state, teacher, values(1.0))[1]["Q"] == 1.0
    weights = ParameterAverage()
    server = Server(rule=MEAN, stage=Ladder())
    _, teacher = server.aggregate(0, weights, {}, None, values(5.0))
    assert server.aggregate(1, weights, {}, teacher, values(1.0))[1]["Q"] == 1.0
    assert not server.stage.asked
    assert not server.counts


class Shown(Rule):
    """A rule that keeps what it is shown and counts the first reply."""

    def __new__(cls):
        return super().__new__(cls, "shown", plays=True)

    def counted(self, replies, expects, play=None):
        self.replies, self.expects, self.play = replies, expects, play
        return {0: replies[0]}


def test_a_verdict_leaves_no_trace_and_is_that_of_the_round_under_way(caplog):
    caplog.set_level(logging.DEBUG)
    server, _, teacher = after_one_round()
    before = dict(server.counts), dict(server.used_weights)
    server.rule, replies = Shown(), values(1.0, 2.0)
    server.invite(6)
    assert server.verdict(FOLLOWING, replies, teacher) == [True, False]
    assert server.rule.replies is replies
    assert server.rule.expects == {"Q": Expected((1, 1), "f")}
    assert server.rule.play.last.tolist() == [5.0, 5.2, 5.1]
    server.rule.play.earn(np.array([[3.0]]))
    assert server.stage.asked == [(7.0, 5.0, 6), (8.0, 3.0, 6)]
    assert (dict(server.counts), dict(server.used_weights)) == before
    assert not caplog.messages
    server.verdict(FOLLOWING, replies, None)
    assert server.rule.play.last is None
    server.stage = None
    server.verdict(FOLLOWING, replies, teacher)
    assert server.rule.play is None


def test_the_rule_is_shown_what_is_expected_after_the_teacher_and_how_to_play():
    class Growing(AnchorCompile):
        """Expects more values after a teacher."""

        def expects(self, teacher):
            return {"Q": Expected((1 if teacher is None else 2, 1), "f")}

    federation = Growing(np.full((1, 1), 7.0))
    server = Server(rule=Shown(), stage=Ladder())
    state, teacher = server.aggregate(0, federation, {"kept": np.ones(1)}, None, values(5.0, 6.0))
    assert server.rule.expects["Q"].shape == (1, 1)
    assert state.keys() == {"kept"}
    assert teacher["Q"] == 5.0
    server.aggregate(1, federation, state, teacher, values(5.0, 6.0))
    assert server.rule.expects["Q"].shape == (2, 1)
    assert server.rule.play.last.tolist() == [5.0, 5.2, 5.1]
    server.verdict(federation, values(5.0), teacher)
    assert server.rule.expects["Q"].shape == (2, 1)
