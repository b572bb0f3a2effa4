"""The loop of rounds by hand: who is asked for what, what is repeated, how long the server took, and how a run ends."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedqhd.agents.client import SPLIT
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Expected, Quota, Reply
from fedqhd.federation import AnchorCompile, Participant, Server, plan_rounds, rounds, run_rounds

ONE = AnchorCompile(np.zeros((1, 1)))


def quotas(*episodes):
    return [Quota(k) for k in episodes]


class Engine:
    """Client i answers i + 10 times the number of calls so far, and has played as many episodes as it was asked for."""

    def __init__(self, *bad):
        self.bad, self.asked, self.finished, self.played = bad, [], [], {}

    def round(self, teacher, quota, clients=None):
        call, episodes = len(self.asked), quota.episodes
        self.asked.append((None if teacher is None else float(teacher["Q"][0, 0]), episodes, clients))
        return [self.reply(i, call, episodes) for i in (range(3) if clients is None else clients)]

    def reply(self, i, call, episodes):
        first = self.played.get(i, 0)
        self.played[i] = first + episodes
        records = tuple(Episode(i, first + k, 1.0, 1, 1.0) for k in range(episodes))
        Q = np.full((1, 1), np.nan if (call, i) in self.bad else i + 10.0 * call)
        return Reply(i, {"Q": Q}, 1.0, episodes, records, "", dict.fromkeys(SPLIT, 0.0))

    def finish(self, teacher):
        self.finished.append(float(teacher["Q"][0, 0]))


class Watched(Server):
    """A server that notes what it is asked for, in how many seconds of a clock."""

    clock = 0.0

    def note(self, name, seconds, *arguments):
        self.__dict__.setdefault("asked", []).append((name, *arguments))
        self.clock += seconds

    def invite(self, k, attempt=0):
        self.note("invite", 1000, k, attempt)
        return super().invite(k, attempt)

    def recorded(self, k, replies, quota, before):
        self.note("recorded", 1, k, [r.client for r in replies], quota.episodes, before)
        return super().recorded(k, replies, quota, before)

    def admit(self, k, attempt, replies, expects):
        self.note("admit", 10, k, attempt, [r.client for r in replies], expects["Q"].shape)
        return super().admit(k, attempt, replies, expects)

    def aggregate(self, k, federation, state, teacher, valid):
        self.note("aggregate", 100, k, None if teacher is None else float(teacher["Q"][0, 0]), len(valid))
        return super().aggregate(k, federation, state, teacher, valid)


def members(N=3):
    return [Participant("")] * N


def told(server, name):
    return [arguments for what, *arguments in server.asked if what == name]


class Widening(AnchorCompile):
    """After a teacher, it does not say how many actions there are; before, there is one."""

    def expects(self, teacher):
        return {"Q": Expected((1, 1 if teacher is None else None), "f")}


def test_a_round_asks_checks_and_aggregates_in_this_order(monkeypatch):
    server, engine = Watched(members(), attempts=2), Engine((1, 0), (1, 1), (1, 2))
    monkeypatch.setattr(rounds, "perf_counter", lambda: server.clock)
    made = list(run_rounds(engine, Widening(np.zeros((1, 1))), quotas(3, 2), server=server))
    everyone = [0, 1, 2]
    # In the second round, no reply of the first attempt is finite.
    assert engine.asked == [(None, 3, everyone), (1.0, 2, everyone), (1.0, 2, everyone)]
    assert told(server, "invite") == [[0, 0], [1, 0], [1, 1]]
    # A client may have played each earlier round twice, and this one once.
    assert told(server, "recorded") == [[0, everyone, 3, 0], [1, everyone, 2, 6], [1, everyone, 2, 8]]
    assert told(server, "admit") == [
        [0, 0, everyone, (1, 1)], [1, 0, everyone, (1, None)], [1, 1, everyone, (1, None)],
    ]  # fmt: skip
    assert told(server, "aggregate") == [[0, None, 3], [1, 1.0, 3]]
    assert server.seconds == 3 * 11 + 2 * 100  # neither the invitation nor the training of the clients
    assert [(r.k, float(r.teacher["Q"][0, 0]), r.state) for r in made] == [(0, 1.0, {}), (1, 21.0, {})]
    assert [[r.client for r in m.replies] for m in made] == [everyone, everyone + everyone]
    assert server.counts["repeated"] == 1
    assert engine.finished == [21.0]


def test_a_run_without_a_server_asks_all_clients_once():
    engine = Engine()
    assert [float(r.teacher["Q"][0, 0]) for r in run_rounds(engine, ONE, quotas(1, 2))] == [1.0, 11.0]
    assert engine.asked == [(None, 1, None), (1.0, 2, None)]
    assert engine.finished == [11.0]


def test_a_run_goes_on_at_its_start_with_its_teacher_and_its_state():
    class Counting(AnchorCompile):
        def start(self):
            return {"rounds": np.array(0)}

        def aggregate(self, state, replies):
            _, teacher = super().aggregate(state, replies)
            return {"rounds": state["rounds"] + 1}, teacher

    federation, engine = Counting(np.zeros((1, 1))), Engine()
    server = Watched(members())
    teacher = {"Q": np.full((1, 1), 7.0)}
    (made,) = run_rounds(engine, federation, quotas(4, 5, 6), 2, teacher, server, {"rounds": np.array(8)})
    assert (made.k, int(made.state["rounds"])) == (2, 9)
    assert engine.asked == [(7.0, 6, [0, 1, 2])]
    assert told(server, "recorded")[0][2:] == [6, 9]
    assert int(next(run_rounds(Engine(), federation, quotas(1))).state["rounds"]) == 1


def test_the_last_teacher_is_installed_however_a_run_ends():
    engine = Engine()
    answers = iter([False, True])
    assert len(list(run_rounds(engine, ONE, quotas(1) * 5, stopped=lambda: next(answers)))) == 2
    assert engine.finished == [11.0]
    assert list(run_rounds(engine, ONE, quotas(1, 1), 2, {"Q": np.full((1, 1), 3.0)})) == []  # nothing is left to play
    assert engine.finished == [11.0, 3.0]
    assert list(run_rounds(engine, ONE, [])) == []  # there is no teacher
    assert engine.finished == [11.0, 3.0]


@pytest.mark.parametrize(("attempts", "repeated"), [(1, 0), (2, 1), (4, 3)])
def test_too_few_valid_replies_end_a_run_with_this_sentence(attempts, repeated):
    bad = [(call, i) for call in range(9) for i in (0, 2)]
    server, engine = Server(members(), min_clients=2, attempts=attempts), Engine(*bad)
    sentence = (
        "round 0: 1 of 3 replies count, but min_clients=2 are needed; 0 are late, and the log says why others were "
        "refused"
    )
    with pytest.raises(FedQHDError, match=f"^{re.escape(sentence)}$"):
        list(run_rounds(engine, ONE, quotas(1), server=server))
    assert (len(engine.asked), server.counts["repeated"], engine.finished) == (attempts, repeated, [])


def test_as_many_valid_replies_as_are_needed_are_enough():
    server, engine = Server(members(), min_clients=2, attempts=2), Engine((0, 1))
    (made,) = run_rounds(engine, ONE, quotas(1), server=server)
    assert made.teacher["Q"] == 1.0  # of clients 0 and 2
    assert "repeated" not in server.counts or server.counts["repeated"] == 0
    with pytest.raises(FedQHDError, match=r"^round 0: 0 of 3 replies count, .* 3 are late, "):
        list(run_rounds(Engine(), ONE, quotas(1), server=Server(members(), late=1.0)))


def test_the_last_round_is_shorter_where_the_episodes_do_not_divide():
    assert plan_rounds(Quota(7), Quota(3)) == quotas(3, 3, 1)
    assert plan_rounds(Quota(6), Quota(3)) == quotas(3, 3)
    assert plan_rounds(Quota(2), Quota(5)) == quotas(2)
    assert plan_rounds(Quota(0), Quota(5)) == []
    assert plan_rounds(Quota(steps=7), Quota(steps=3)) == [Quota(steps=n) for n in (3, 3, 1)]
