"""Anchors that clients have visited, and anchors that follow the teacher: what is sent, expected and taught."""

from __future__ import annotations

import numpy as np

from fedqhd.core.protocols import Episode, Expected, Reply
from fedqhd.federation import AnchorCompile, TeacherAnchors, VisitedAnchors
from fedqhd.federation.aggregate import RULES

HERE, THERE = np.arange(6.0).reshape(3, 2), np.arange(6.0, 14.0).reshape(4, 2)
Q = np.arange(8.0).reshape(4, 2)
MEDIAN = RULES["median"].combine


class Site:
    """A client that says which states it was asked about."""

    def __init__(self):
        self.agent, self.fitted, self.synchronised = self, [], 0

    def visited(self, k):
        return np.full((k, 2), 3.0)

    def q(self, states):
        return np.outer(states.sum(axis=1), [1.0, -1.0])

    def fit_anchors(self, anchors, Q):
        self.fitted.append((anchors, Q))

    def sync_target(self):
        self.synchronised += 1


def reply(client, name, value, *episodes):
    return Reply(client, {name: value}, 1.0, 1, tuple(Episode(client, e, 0.0, 1, 1.0) for e in episodes), "", {})


# --- anchors that clients have visited ---


def test_the_first_exchange_gathers_states_and_the_others_are_about_them():
    exchange, site = VisitedAnchors(7, 2, 2, 2, MEDIAN), Site()
    assert exchange.share == 4
    assert exchange.start() == {}
    assert exchange.expects(None) == {"states": Expected((None, 2), "f", votes=False)}
    (gathered,) = exchange.report(site, None).items()
    assert gathered[0] == "states"
    assert gathered[1].shape == (4, 2)
    state, first = exchange.aggregate({}, [reply(0, "states", HERE), reply(1, "states", THERE)])
    assert state.keys() == first.keys() == {"anchors"}
    np.testing.assert_array_equal(first["anchors"], np.vstack([HERE, THERE]))
    assert exchange.expects(first) == {"Q": Expected((7, 2), "f")}
    np.testing.assert_array_equal(exchange.report(site, first)["Q"][:, 0], first["anchors"].sum(axis=1))
    replies = [reply(i, "Q", np.full((7, 2), x)) for i, x in enumerate((1.0, 2.0, 9.0))]
    again, second = exchange.aggregate(state, replies)
    assert again is state
    assert second.keys() == {"anchors", "Q"}
    assert second["anchors"] is state["anchors"]
    np.testing.assert_array_equal(second["Q"], np.full((7, 2), 2.0))  # the median
    assert exchange.expects(second) == {"Q": Expected((7, 2), "f")}


def test_a_client_keeps_its_weights_until_there_are_values():
    exchange, site = VisitedAnchors(7, 2, 2), Site()
    exchange.install(site, {"anchors": THERE})
    assert (site.synchronised, site.fitted) == (1, [])
    exchange.install(site, {"anchors": THERE, "Q": Q})
    ((anchors, values),) = site.fitted
    assert anchors is THERE
    assert values is Q
    assert site.synchronised == 1


def test_a_teacher_of_visited_anchors_has_values_for_each_of_them():
    exchange, anchors = VisitedAnchors(7, 2, 2, 5), Expected((None, 2), "f")
    assert exchange.teaches({"anchors": THERE}) == {"anchors": anchors}
    assert exchange.teaches({"anchors": THERE, "Q": Q}) == {"anchors": anchors, "Q": Expected((4, 5), "f")}
    assert exchange.teaches({"Q": Q}) == exchange.teaches({}) == {"anchors": anchors}


def test_reports_are_about_the_anchors_of_the_teacher_and_about_none_before():
    exchange, teacher = VisitedAnchors(7, 2, 2), {"anchors": THERE}
    assert exchange.reported_at(None).shape == (0, 2)
    assert exchange.reported_at(teacher) is exchange.anchors_of(teacher) is THERE
    assert exchange.is_mean
    assert not VisitedAnchors(7, 2, 2, 2, MEDIAN).is_mean


# --- anchors that follow the teacher ---


def test_one_exchange_is_about_the_present_anchors_and_the_next_about_those_that_follow():
    played, site = [], Site()

    def rollout(*arguments):
        played.append(arguments)
        return THERE

    exchange = TeacherAnchors(AnchorCompile(HERE, 2, MEDIAN), rollout)
    state = exchange.start()
    assert state.keys() == {"anchors"}
    assert state["anchors"] is exchange.reported_at(None) is HERE
    assert exchange.expects(None) == {"Q": Expected((3, 2), "f")}
    np.testing.assert_array_equal(exchange.report(site, None)["Q"][:, 0], HERE.sum(axis=1))
    # The client that has played most has played episodes 0 to 6.
    replies = [reply(0, "Q", Q[:3], 0, 1), reply(1, "Q", Q[:3] + 1, 5, 6), reply(2, "Q", Q[:3] + 9, 3)]
    following, teacher = exchange.aggregate(state, replies)
    ((anchors, values, episodes),) = played
    assert anchors is HERE
    assert values is teacher["Q"]
    assert episodes == 7
    assert following.keys() == {"anchors", "episodes"}
    assert following["episodes"] == 7
    assert teacher.keys() == {"anchors", "Q", "next"}
    assert following["anchors"] is teacher["next"] is exchange.reported_at(teacher) is THERE
    assert teacher["anchors"] is exchange.anchors_of(teacher) is HERE
    np.testing.assert_array_equal(teacher["Q"], Q[:3] + 1)  # the median
    assert exchange.expects(teacher) == {"Q": Expected((4, 2), "f")}
    np.testing.assert_array_equal(exchange.report(site, teacher)["Q"][:, 0], THERE.sum(axis=1))
    exchange.install(site, teacher)
    ((fitted, values),) = site.fitted
    assert fitted is HERE
    assert values is teacher["Q"]
    assert not exchange.is_mean
    assert TeacherAnchors(AnchorCompile(HERE), rollout).is_mean


def test_what_is_inside_is_asked_about_the_same_teacher():
    asked = []

    class Noting(AnchorCompile):
        def report(self, client, teacher):
            asked.append(teacher)
            return super().report(client, teacher)

        def expects(self, teacher):
            asked.append(teacher)
            return super().expects(teacher)

        def teaches(self, teacher):
            asked.append(teacher)
            return super().teaches(teacher)

    exchange, teacher = TeacherAnchors(Noting(HERE, 2), lambda *_: THERE), {"anchors": HERE, "next": THERE, "Q": Q}
    exchange.report(Site(), teacher)
    exchange.expects(teacher)
    anchors = Expected((3, 2), "f")
    assert exchange.teaches(teacher) == {"anchors": anchors, "next": anchors, "Q": Expected((3, 2), "f")}
    assert [t is teacher for t in asked] == [True] * 3
