"""What the server draws, counts, logs and remembers, worked out by hand; whole sentences where a user reads them."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import pytest
from test_server import EXPECTS, MEMBERS, good, played, with_Q

from fedqhd.agents.client import SPLIT
from fedqhd.core import rng
from fedqhd.core.protocols import Episode, Quota, Reply
from fedqhd.federation import AnchorCompile, Participant, Server
from fedqhd.federation.aggregate import Rule

LATER = " (this is said once; summary.json counts how often it happens)"


@pytest.fixture
def lines(caplog):
    """(level, sentence) of everything that the server has logged."""
    caplog.set_level(logging.DEBUG, "fedqhd.federation.server")
    return lambda: [(r.levelname, r.getMessage()) for r in caplog.records]


def drawn(seed, purpose, index):
    return np.random.default_rng(rng.env_seed(seed, rng.PUBLIC, purpose, index))


# --- who is invited ---


def test_a_draw_is_of_the_seed_the_purpose_the_round_and_the_attempt():
    server = Server([Participant("")] * 9, participation=0.4, attempts=3, seed=11)
    for k, attempt in ((0, 0), (0, 2), (4, 1)):
        order = drawn(11, "invite", 3 * k + attempt).permutation(9)
        assert server.invite(k, attempt) == sorted(order[:4].tolist())
        assert server.current == k
    assert server.invite(2) == server.invite(2, 0)
    assert {type(i) for i in server.invite(0)} == {int}


def test_a_client_is_present_from_its_first_round_to_its_last():
    server = Server([Participant("")] * 3, present={0: (4, 9), 2: (0, 4)})
    present = {k: server.invite(k) for k in (0, 3, 4, 5, 9, 10)}
    assert present == {0: [1, 2], 3: [1, 2], 4: [0, 1, 2], 5: [0, 1], 9: [0, 1], 10: [1]}


@pytest.mark.parametrize(("share", "size"), [(0.01, 1), (0.5, 2), (0.6, 3), (0.75, 4), (1.0, 5)])
def test_a_round_invites_its_share_and_at_least_one(share, size):
    server = Server([Participant("")] * 5, participation=share)
    assert {len(server.invite(k)) for k in range(9)} == {size}


def test_who_owes_a_late_reply_is_not_invited_and_nobody_else_is_left_out():
    server = Server([Participant("")] * 4)
    server.pending = [good(1)]
    assert server.invite(0) == [0, 2, 3]
    server.pending = [good(i)._replace(client=i) for i in range(3)] + [good(0)._replace(client=3)]
    assert server.invite(0) == []


# --- what is recorded and admitted ---


def test_a_record_is_refused_with_this_sentence(lines):
    server = Server(MEMBERS, longest=6)
    long = played(episodes=tuple(Episode(1, k, 1.0, 7, 0.5) for k in (2, 3)), steps=14)
    for reply in (played(client=3), played(client=-1), played(client=1.0), long, played()):
        server.recorded(5, [reply], Quota(2), 2)
    nobody = "there are only clients 0 to 2"
    assert lines() == [
        ("WARNING", f"round 5: the reply of client 3 is refused: {nobody}{LATER}"),
        ("WARNING", f"round 5: the reply of client -1 is refused: {nobody}{LATER}"),
        ("WARNING", f"round 5: the reply of client 1.0 is refused: {nobody}{LATER}"),
        ("WARNING", "round 5: the reply of client 1 is refused: in the record of an episode, its length is 7, but must "
         f"be a whole number from 0 to 6{LATER}"),
    ]  # fmt: skip
    assert server.counts == {f"refused/{who}/client": 1 for who in (3, -1, 1.0)} | {"refused/1/episodes": 1}


def test_the_records_of_good_replies_are_kept_as_they_are_and_in_their_order():
    first = good(0, episodes=(Episode(0, 0, 1.0, 12, 1.0),), seconds=dict.fromkeys(SPLIT, 0.0))
    others = [first._replace(client=i, episodes=(Episode(i, 0, 1.0, 12, 1.0),)) for i in (2, 1)]
    replies = [first, others[0], first._replace(steps=-1), others[1]]
    assert Server(MEMBERS).recorded(0, replies, Quota(1), 0) == [first, *others]
    unknown = Server().recorded(0, replies, Quota(1), 0)  # nothing is known of the clients
    assert unknown == replies
    assert unknown is not replies
    assert Server(MEMBERS).recorded(0, [first], Quota(1), 0)[0] is first


def test_a_reply_is_refused_with_this_sentence_and_counted_by_client_and_kind(lines):
    server = Server(MEMBERS, max_magnitude=6.5)
    small = with_Q(np.zeros((4, 2)))  # the reply before it does not count, so it is not the second one
    assert server.admit(3, 0, [good(0), small, good(1)._replace(payload={})], EXPECTS) == [small]
    (kept,) = server.admit(4, 0, [with_Q(np.zeros((4, 2))), with_Q(np.ones((4, 2)))], EXPECTS)
    assert kept.payload["Q"].sum() == 0
    assert lines() == [
        ("WARNING", f"round 3: the reply of client 0 is refused: its Q goes up to 7, beyond max_magnitude=6.5{LATER}"),
        ("WARNING", f"round 3: the reply of client 1 is refused: it sent [], but ['Q', 'p'] is expected{LATER}"),
        ("WARNING", f"round 4: the reply of client 0 is refused: it has replied already{LATER}"),
    ]
    assert server.counts == {"refused/0/magnitude": 1, "refused/1/names": 1, "refused/0/duplicate": 1}


def test_valid_replies_are_in_client_order_and_whole():
    server = Server(MEMBERS)
    replies = [good(2), good(0), good(1)]
    assert [id(r) for r in server.admit(0, 0, replies, EXPECTS)] == [id(replies[i]) for i in (1, 2, 0)]


def test_who_is_late_is_drawn_by_round_and_attempt():
    server = Server([Participant("b")] * 40, late=0.3, attempts=2, seed=5)
    replies = [good(1)._replace(client=i) for i in range(40)]
    for k, attempt in ((0, 0), (3, 1)):
        server.pending = []
        arrived = server.admit(k, attempt, replies, EXPECTS)
        late = np.flatnonzero(drawn(5, "late", 2 * k + attempt).random(40) < 0.3)
        assert [r.client for r in server.pending] == late.tolist()
        assert [r.client for r in arrived] == sorted({*range(40)} - {*late.tolist()})


def test_a_late_reply_is_checked_again_and_counts_once(lines):
    """Of clients whose replies weigh 12, 1 and 1. Client 0 answers in time as well; that of client 1 no longer fits."""
    server = Server(MEMBERS, late_weight=0.25)
    server.pending = [good(2), good(0), good(1)._replace(payload={})]
    arrived = server.admit(7, 0, [good(0)], EXPECTS)
    assert [(r.client, r.weight) for r in arrived] == [(0, 1.0), (2, 3.0)]
    assert server.pending == []
    assert [sentence for _, sentence in lines()] == [
        f"round 7: the reply of client 0 is refused: it has replied already{LATER}",
        f"round 7: the reply of client 1 is refused: it sent [], but ['Q', 'p'] is expected{LATER}",
    ]
    assert server.counts == Counter(
        {"late/2": 1, "late/0": 1, "late/1": 1, "refused/0/duplicate": 1, "refused/1/names": 1}
    )


def test_late_replies_that_are_dropped_are_counted_and_not_checked(lines):
    server = Server(MEMBERS, late_weight=0.0)
    server.pending = [good(2), good(1)._replace(payload={})]
    assert [r.client for r in server.admit(7, 0, [good(0)], EXPECTS)] == [0]
    assert server.counts == {"late/2": 1, "late/1": 1}
    assert not lines()


# --- what is counted and logged ---


def test_the_first_of_a_kind_is_a_warning_and_the_others_are_information(lines):
    server = Server(MEMBERS)
    for client in (4, 4, 5):
        server.record_absence(client, "timeout", "it did not reply in 5 s")
    said = "is left out of this round: it did not reply in 5 s"
    assert lines() == [
        ("WARNING", f"client 4 {said}{LATER}"), ("INFO", f"client 4 {said}"), ("WARNING", f"client 5 {said}{LATER}"),
    ]  # fmt: skip
    assert server.counts == {"absent/4/timeout": 2, "absent/5/timeout": 1}


def test_of_each_kind_twenty_are_warned_of(lines):
    server = Server(MEMBERS)
    server.record_absence(0, "gone", "it is gone")  # of another kind
    for client in range(22):
        server.counts["left out/99"] += 1  # counted without a word
        server._count(f"refused/{client}/type", f"it is {client}")
    refused = [(level, sentence.removesuffix(LATER)) for level, sentence in lines()[1:]]
    assert refused == [
        *(("WARNING", f"it is {i}") for i in range(20)), ("WARNING", "more that is refused is only counted"),
        ("INFO", "it is 20"), ("INFO", "it is 21"),
    ]  # fmt: skip
    assert server.counts["refused/21/type"] == 1


# --- what is selected ---


def values(*numbers):
    played = (Episode(0, 0, 0.0, 1, 1.0),)
    return [Reply(i, {"Q": np.array([[x]])}, 1.0, 1, played, "", {}) for i, x in enumerate(numbers)]


def only(*clients):
    """A rule that counts these of three clients."""
    return Rule("own", select=lambda arrays: np.isin(np.arange(3), clients), reason="it is odd")


def test_who_is_left_out_is_counted_and_logged_and_the_weights_of_the_others_are_kept(lines):
    server = Server(rule=only(0, 2))
    selected = server.select(9, [good(2), good(1), good(0)], EXPECTS)
    assert [r.client for r in selected] == [0, 2]
    assert server.used_weights == {0: 1.0, 2: 12.0}
    assert server.counts == {"left out/1": 1}
    assert lines() == [("WARNING", f"round 9: aggregate=own leaves out the reply of client 1: it is odd{LATER}")]
    server.aggregate(12, AnchorCompile(np.zeros((1, 1))), {}, None, values(1.0, 2.0, 3.0))
    assert lines()[1:] == [("INFO", "round 12: aggregate=own leaves out the reply of client 1: it is odd")]
    twice = Server().select(0, [good(1, weight=3.0), good(1, weight=2.0)], None)  # compared by client alone
    assert [r.weight for r in twice] == [3.0, 2.0]


def test_arrays_that_do_not_vote_are_not_shown_to_the_rule():
    seen = []
    rule = Rule("own", select=lambda arrays: seen.append([a.shape for a in arrays]) or np.ones(len(arrays[0]), bool))
    silent = {"Q": EXPECTS["Q"], "p": EXPECTS["p"]._replace(votes=False)}
    server = Server(rule=rule)
    server.select(0, [good(0), good(1)], silent)
    server.select(0, [good(0), good(1)], None)
    assert seen == [[(2, 4, 2)], [(2, 4, 2), (2, 3)]]


# --- what a checkpoint holds ---


def test_the_state_of_a_server_has_these_names_in_every_checkpoint():
    server = Server(MEMBERS)
    server.counts["late/2"] = 3
    server.pending = [good(2), good(1)]
    arrays, note = server.state()
    assert set(arrays) == {"0/Q", "0/p", "1/Q", "1/p"}
    assert arrays["1/Q"] is server.pending[1].payload["Q"]
    assert note == {
        "counts": {"late/2": 3},
        "pending": [
            [2, {}, 12.0, 12, ((2, 0, 1.0, 12, 1.0),), "c", {}], [1, {}, 1.0, 12, ((1, 0, 1.0, 12, 1.0),), "b", {}],
        ],
    }  # fmt: skip
    again = Server(MEMBERS)
    again.restore(arrays, note)
    assert again.counts == server.counts
    assert again.counts["never"] == 0
    assert [(r.client, sorted(r.payload)) for r in again.pending] == [(2, ["Q", "p"]), (1, ["Q", "p"])]
    assert again.pending[0].payload["Q"] is arrays["0/Q"]
