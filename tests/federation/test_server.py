"""The server's side of a round: what it refuses, whom it invites, what comes late, and when it gives up."""

from __future__ import annotations

import dataclasses
import json
import logging

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import tiny
from fedqhd.agents.client import SPLIT
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Expected, Quota, Reply
from fedqhd.federation import AnchorCompile, ParameterAverage, Participant, Server, run_rounds
from fedqhd.federation.method import method_of
from fedqhd.federation.terms import misfits
from fedqhd.federation.validate import Refused, check_reply
from fedqhd.runs.build import build, make_server
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import final_returns, training_returns
from fedqhd.runs.run import train

MEMBERS = [Participant("a"), Participant("b"), Participant("c", None)]
EXPECTS = {"Q": Expected((4, 2), "f"), "p": Expected((3,), "f", least=0.0)}
BOUND = 1e6


def good(client=0, **changes):
    payload = {"Q": np.arange(8.0).reshape(4, 2), "p": np.zeros(3, np.float32)}
    weight = 12.0 if client == 2 else 1.0
    episodes = (Episode(client, 0, 1.0, 12, 1.0),)
    return Reply(client, payload, weight, 12, episodes, "abc"[client], {})._replace(**changes)


def check(reply, members=MEMBERS, expects=EXPECTS):
    check_reply(reply, members, expects, BOUND)


def with_Q(value):
    return good(payload={**good().payload, "Q": value})


def entry(x, dtype=np.float64):
    Q = np.ones((4, 2), dtype)
    Q[3, 1] = x
    return Q


BAD = {
    "unknown client": (good(client=0)._replace(client=3), "client"),
    "negative client": (good()._replace(client=-1), "client"),
    "client that is a word": (good()._replace(client="0"), "client"),
    "client that is a truth": (good()._replace(client=False), "client"),
    "another's fingerprint": (good(fingerprint="b"), "fingerprint"),
    "fingerprint that is no text": (good(fingerprint=None), "fingerprint"),
    "more weight than agreed": (good(weight=2.0), "weight"),
    "negative weight": (good(weight=-1.0), "weight"),
    "weight nan": (good(weight=float("nan")), "weight"),
    "weight that is a word": (good(weight="1"), "weight"),
    "weight beyond the steps": (good(client=2, weight=1e9), "weight"),
    "payload that is a list": (good(payload=[1, 2]), "names"),
    "no payload": (good(payload=None), "names"),
    "nothing in it": (good(payload={}), "names"),
    "a name missing": (good(payload={"Q": good().payload["Q"]}), "names"),
    "a name too many": (good(payload={**good().payload, "W": np.zeros(2)}), "names"),
    "a name that is no text": (good(payload={"Q": np.zeros((4, 2)), 7: np.zeros(3)}), "names"),
    "a list for an array": (with_Q([[0.0, 0.0]] * 4), "type"),
    "whole numbers": (with_Q(np.ones((4, 2), np.int64)), "type"),
    "truths": (with_Q(np.ones((4, 2), bool)), "type"),
    "complex numbers": (with_Q(np.ones((4, 2), complex)), "type"),
    "objects": (with_Q(np.full((4, 2), None)), "type"),
    "words": (with_Q(np.full((4, 2), "1.0")), "type"),
    "the other byte order": (with_Q(np.ones((4, 2), ">f8")), "type"),
    "records": (with_Q(np.zeros((4, 2), [("x", "f8")])), "type"),
    "another shape": (with_Q(np.ones((2, 4))), "shape"),
    "an axis too many": (with_Q(np.ones((4, 2, 1))), "shape"),
    "no axis": (with_Q(np.array(1.0)), "shape"),
    "nan": (with_Q(entry(np.nan)), "not finite"),
    "infinite": (with_Q(entry(-np.inf, np.float32)), "not finite"),
    "too large": (with_Q(entry(2e6)), "magnitude"),
    "too large below zero": (with_Q(entry(-2e6)), "magnitude"),
    "below what is possible": (good(payload={**good().payload, "p": np.array([0.0, -0.1, 0.0])}), "range"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_refused_with_its_reason(name):
    reply, kind = BAD[name]
    with pytest.raises(Refused) as refused:
        check(reply)
    assert refused.value.kind == kind
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_what_can_be_used_is_not_refused():
    """Negative control: the good replies, in either precision, at the bound, read-only and of any memory layout."""
    for client in range(3):
        check(good(client))
    layouts = (np.asfortranarray(entry(5.0)), np.ones((8, 2))[::2])
    for Q in (np.ones((4, 2), np.float32), entry(BOUND), entry(-BOUND), *layouts):
        check(with_Q(Q))
    frozen = np.ones((4, 2))
    frozen.setflags(write=False)
    check(with_Q(frozen))
    check(good(client=np.int64(1), fingerprint="b"))


class Junk:
    """A value with opinions of its own."""

    def __eq__(self, other):
        return True

    __hash__ = None


def mutate(rng):
    """A reply that was good before one thing in it was made wrong, at random."""
    numbers = [-1, 10**30, 1e308, float("nan"), float("inf"), 3 + 4j]
    junk = [None, "x", b"\0", [], {}, (), object(), Junk(), "Q" * 999, *numbers]
    reply = good(int(rng.integers(3)))
    name = ("Q", "p")[rng.integers(2)]
    value = reply.payload[name].astype(np.float64)
    what = int(rng.integers(9))
    if what == 0:
        field = ("client", "payload", "weight", "fingerprint")[rng.integers(4)]
        return reply._replace(**{field: junk[rng.integers(len(junk))]})
    if what == 1:
        return reply._replace(payload={**reply.payload, name: junk[rng.integers(len(junk))]})
    if what == 2:
        return reply._replace(payload={k: v for k, v in reply.payload.items() if k != name})
    if what == 3:
        return reply._replace(payload={**reply.payload, str(rng.integers(1 << 30)): value})
    if what == 4:
        shape = tuple(rng.integers(0, 5, size=rng.integers(5)))
        value = np.zeros(shape if shape != value.shape else (9,))
    elif what == 5:
        kinds = ("i1", "u8", "?", "c8", "c16", "S3", "U2", "O", "M8[s]", "m8[ms]", "V4", ">f4", ">f8", "g", "i4,f8")
        value = np.zeros(value.shape, np.dtype(kinds[rng.integers(len(kinds))]))
    elif what == 6:
        value.flat[rng.integers(value.size)] = (np.nan, np.inf, -np.inf, 1.1e6, -1.1e6, 1e308)[rng.integers(6)]
    elif what == 7:
        name, value = "p", np.array([0.0, 0.0, -(10.0 ** rng.integers(-300, 6))])
    else:
        return reply._replace(weight=float(reply.weight * 10.0 ** rng.choice([-300, -1, 1, 300]) * rng.choice([-1, 1])))
    return reply._replace(payload={**reply.payload, name: value})


@pytest.mark.slow
def test_of_a_hundred_thousand_malformed_replies_none_is_accepted_and_none_crashes():
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(100_000):
        with pytest.raises(Refused) as refused:
            check(mutate(rng))
        kinds.add(refused.value.kind)
    assert kinds == {"client", "fingerprint", "weight", "names", "type", "shape", "not finite", "magnitude", "range"}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4)
    | hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_side=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(st.builds(Reply, anything, anything, anything, anything, st.just(()), anything, st.just({})))
@example(Reply(0, {"": None, 0: None}, 0, None, (), None, {}))  # names of which not all are texts
@settings(max_examples=300, deadline=None)
def test_whatever_comes_the_answer_is_yes_or_a_reason(reply):
    for members, expects in ((MEMBERS, EXPECTS), (None, None)):
        try:
            check(reply, members, expects)
        except Refused:
            continue
        for value in reply.payload.values():
            assert np.isfinite(value).all()


def admit(server, *replies):
    return [r.client for r in server.admit(0, 0, replies, EXPECTS)]


def test_a_refusal_is_logged_and_counted_and_the_others_count(caplog):
    server = Server(MEMBERS, max_magnitude=BOUND)
    with caplog.at_level(logging.WARNING):
        counted = admit(server, good(0), BAD["nan"][0]._replace(client=1, fingerprint="b"), good(2))
    assert counted == [0, 2]
    assert dict(server.counts) == {"refused/1/not finite": 1}
    assert "client 1 is refused: its Q is not finite" in caplog.text


def test_of_a_fleet_twenty_are_warned_of_and_all_are_counted(caplog):
    server = Server([Participant("b")] * 50, max_magnitude=BOUND)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert admit(server, *(good()._replace(client=i) for i in range(50))) == []
    assert server.counts.total() == 100
    *first, last = (record.message for record in caplog.records)
    assert [f"client {i} " in message for i, message in enumerate(first)] == [True] * 20
    assert last == "more that is refused is only counted"


def test_of_two_replies_of_one_client_the_first_counts():
    server = Server(MEMBERS, max_magnitude=BOUND)
    second = with_Q(np.zeros((4, 2)))
    (kept,) = server.admit(0, 0, [good(0), second], EXPECTS)
    np.testing.assert_array_equal(kept.payload["Q"], good().payload["Q"])
    assert dict(server.counts) == {"refused/0/duplicate": 1}


def test_a_share_of_those_present_is_invited_and_everyone_in_turn():
    server = Server([Participant("")] * 20, participation=0.5, present={3: (4, 9)}, seed=1)
    rounds = [server.invite(k) for k in range(40)]
    assert all(len(r) == len(set(r)) == 10 for r in rounds)
    assert [k for k, r in enumerate(rounds) if 3 in r] == [k for k in range(4, 10) if 3 in rounds[k]] != []
    often = np.bincount(np.concatenate(rounds), minlength=20)
    # Binomial(40, 1/2): 20 with a deviation of 3.2; four of them are allowed.
    others = np.delete(often, 3)
    assert others.min() > 7
    assert others.max() < 33
    assert [server.invite(k) for k in range(40)] == rounds
    assert [dataclasses.replace(server, seed=2).invite(k) for k in range(40)] != rounds
    assert server.invite(5, 1) != server.invite(5, 0) or server.invite(6, 1) != server.invite(6, 0)


def test_all_are_invited_by_default_in_order():
    assert Server([Participant("")] * 5).invite(7) == [0, 1, 2, 3, 4]
    assert Server().invite(7) is None


class Sites:
    """An engine whose client i answers with i + 10 times the round."""

    def __init__(self, N, bad=()):
        self.N, self.bad, self.rounds = N, bad, []

    def round(self, teacher, quota, clients=None):
        k = len(self.rounds)
        who = list(range(self.N)) if clients is None else clients
        self.rounds.append((who, teacher))
        value = [np.nan if (k, i) in self.bad else i + 10.0 * k for i in who]
        played = [(Episode(i, k, 1.0, 1, 1.0),) for i in who]
        return [
            Reply(i, {"Q": np.full((1, 1), v)}, 1.0, 1, p, "", dict.fromkeys(SPLIT, 0.0))
            for i, v, p in zip(who, value, played, strict=True)
        ]

    def finish(self, teacher): ...
    def close(self): ...


def rounds_of(engine, server, rounds):
    return list(run_rounds(engine, AnchorCompile(np.zeros((1, 1))), rounds, server=server))


def teachers(engine, server, rounds):
    return [float(t["Q"][0, 0]) for _, _, t, _ in rounds_of(engine, server, rounds)]


def test_a_late_reply_counts_a_round_later_with_less_weight():
    """By hand: what is late in a round is missing there, and joins the next with half the weight."""
    server = Server([Participant("")] * 4, late=0.4, late_weight=0.5, seed=5)
    engine = Sites(4)
    made = teachers(engine, server, [Quota(1)] * 6)
    late_before, saw_late = [], 0
    for k, (who, _) in enumerate(engine.rounds):
        assert not set(who) & set(late_before)  # who is underway is not invited
        underway = server._draw("late", k, 0).random(len(who)) < 0.4
        values = [(i + 10.0 * k, 1.0) for i, late in zip(who, underway, strict=True) if not late]
        values += [(i + 10.0 * (k - 1), 0.5) for i in late_before]
        assert made[k] == pytest.approx(np.average([v for v, _ in values], weights=[w for _, w in values]))
        late_before = [i for i, late in zip(who, underway, strict=True) if late]
        saw_late += len(late_before)
    assert saw_late >= 3
    assert sum(n for key, n in server.counts.items() if key.startswith("late/")) == saw_late - len(late_before)


def test_a_late_reply_can_be_dropped():
    plain = Server([Participant("")] * 8, late=0.2, late_weight=0.0, seed=5)
    engine = Sites(8)
    made = teachers(engine, plain, [Quota(1)] * 6)
    for k, (who, _) in enumerate(engine.rounds):
        underway = plain._draw("late", k, 0).random(len(who)) < 0.2
        in_time = [i + 10.0 * k for i, late in zip(who, underway, strict=True) if not late]
        assert made[k] == pytest.approx(np.mean(in_time))


def test_when_all_are_late_their_replies_are_waited_for():
    server = Server([Participant("")] * 2, late=1.0, attempts=2)
    engine = Sites(2)
    assert teachers(engine, server, [Quota(1)]) == [0.5]
    assert [who for who, _ in engine.rounds] == [[0, 1], []]


def test_too_few_valid_replies_end_the_run():
    """Never an average of nothing: with one attempt the run stops, and says how many counted."""
    engine = Sites(3, bad={(1, 0), (1, 2)})
    with pytest.raises(FedQHDError, match=r"round 1: 1 of 3 replies count, but min_clients=2 are needed"):
        teachers(engine, Server([Participant("")] * 3, min_clients=2), [Quota(1)] * 3)
    everyone = Sites(3, bad={(0, 0), (0, 1), (0, 2)})
    with pytest.raises(FedQHDError, match=r"round 0: 0 of 3 replies count"):
        teachers(everyone, Server([Participant("")] * 3), [Quota(1)] * 3)


def test_too_few_valid_replies_repeat_the_round_with_the_same_teacher():
    engine = Sites(3, bad={(1, 0), (1, 2)})
    server = Server([Participant("")] * 3, min_clients=2, attempts=3)
    played = [len(replies) for _, replies, _, _ in rounds_of(engine, server, [Quota(1)] * 3)]
    assert played == [3, 6, 3]  # all that was played is told, also in vain
    assert [None if t is None else float(t["Q"][0, 0]) for _, t in engine.rounds] == [None, 1.0, 1.0, 21.0]
    assert server.counts["repeated"] == 1


def test_the_state_of_a_server_survives_a_file():
    server = Server([Participant("")] * 4, late=0.5, seed=5, participation=0.75)
    rounds_of(Sites(4), server, [Quota(1)] * 3)
    assert server.pending
    arrays, note = server.state()
    again = Server([Participant("")] * 4, late=0.5, seed=5, participation=0.75)
    again.restore(arrays, json.loads(json.dumps(note)))
    assert again.counts == server.counts
    for a, b in zip(again.pending, server.pending, strict=True):
        np.testing.assert_array_equal(a.payload["Q"], b.payload["Q"])
        assert a._replace(payload={}) == b._replace(payload={})


def test_weights_of_a_client_whose_encoder_changed_are_not_averaged(rng):
    server = Server([Participant("a"), Participant("b")], max_magnitude=BOUND)
    replies = [Reply(i, {"W": np.ones((3, 2))}, 1.0, 1, (), "a", {}) for i in range(2)]
    expects = ParameterAverage({"W": np.ones((3, 2))}).expects(None)
    assert [r.client for r in server.admit(0, 0, replies, expects)] == [0]


@pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
def test_a_run_of_which_a_part_comes_late_or_joins_late_or_leaves(tmp_path, setting):
    options = {"clients": 6, "episodes": 12, "round_episodes": 2, "learner": "online", "setting": setting}
    coming = ["4=3:", "5=0:1"]
    summary = train(tiny(tmp_path, participation=0.5, present=coming, late=0.3, too_few="repeat", **options))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    rounds = {c: {r["round"] for r in rows if r["client"] == c} for c in range(6)}
    assert min(rounds[4], default=9) >= 3
    assert max(rounds[5], default=0) <= 1
    returns = training_returns(tmp_path, 6, 12)
    assert np.isnan(returns).any()
    np.testing.assert_allclose(summary["final_return"], np.nanmean(final_returns(returns)))
    assert sum(summary["replies"]["late"].values()) > 0


@pytest.mark.parametrize(("attack", "aggregate"), [("noise", "auto"), ("stale", "median"), ("collude", "multi-krum")])
def test_a_run_with_liars_says_so(tmp_path, attack, aggregate):
    summary = train(
        tiny(tmp_path, clients=5, setting="heterogeneous", learner="online", attack=attack, aggregate=aggregate)
    )
    assert summary["attack"] == attack
    assert len(summary["liars"]) == 1
    if attack == "noise":
        assert summary["replies"]["left out"][str(summary["liars"][0])] == 2  # in both rounds


def test_a_reply_beyond_the_bound_is_refused_in_a_run(tmp_path):
    with pytest.raises(FedQHDError, match="round 0: 0 of 2 replies count"):
        train(tiny(tmp_path, setting="heterogeneous", learner="online", max_magnitude=1e-9))


def played(**changes):
    """A reply of client 1 to two episodes, the third and the fourth."""
    episodes = tuple(Episode(1, k, 1.0, 6, 0.5) for k in (2, 3))
    return good(1, episodes=episodes, seconds=dict.fromkeys(SPLIT, 0.1))._replace(**changes)


def episodes(**changes):
    return played(episodes=(played().episodes[0], played().episodes[1]._replace(**changes)))


BAD_RECORDS = {
    "no episodes": (played(episodes=(), steps=0), "episodes"),
    "episodes that are none": (played(episodes=None), "episodes"),
    "an episode that is none": (played(episodes=(None, None)), "episodes"),
    "one too few": (played(episodes=played().episodes[:1], steps=6), "episodes"),
    "an episode of another": (episodes(client=0), "episodes"),
    "an episode of nobody": (episodes(client=99), "episodes"),
    "an episode to come": (episodes(episode=10**12), "episodes"),
    "a gap": (episodes(episode=4), "episodes"),
    "the same twice": (episodes(episode=2), "episodes"),
    "return nan": (episodes(ret=float("nan")), "episodes"),
    "return that is a word": (episodes(ret="1"), "episodes"),
    "return of numpy": (episodes(ret=np.float32(1.0)), "episodes"),
    "epsilon infinite": (episodes(epsilon=float("inf")), "episodes"),
    "length negative": (episodes(length=-6), "episodes"),
    "length that is a truth": (episodes(length=True), "episodes"),
    "steps beyond the episodes": (played(steps=10**9), "steps"),
    "steps that are a word": (played(steps="12"), "steps"),
    "steps of numpy": (played(steps=np.int64(12)), "steps"),
    "a time missing": (played(seconds={"acting": 1.0}), "seconds"),
    "a time too many": (played(seconds={**dict.fromkeys(SPLIT, 0.1), "sleeping": 1.0}), "seconds"),
    "a time nan": (played(seconds=dict.fromkeys(SPLIT, float("nan"))), "seconds"),
    "no times": (played(seconds=None), "seconds"),
    "client that is none": (played(client=99), "client"),
    "client that is a list": (played(client=[1]), "client"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_record_of_what_a_client_was_not_asked_for_leaves_no_trace(name):
    reply, kind = BAD_RECORDS[name]
    server = Server(MEMBERS)
    assert server.recorded(1, [reply], Quota(2), 2) == []
    assert list(server.counts) == [f"refused/{reply.client!r:.20}/{kind}"]


def test_a_record_of_what_a_client_was_asked_for_is_stored():
    """Negative control; a client that missed rounds is behind, and an oracle plays each episode in all environments."""
    server = Server(MEMBERS)
    behind = played(episodes=tuple(Episode(1, k, 1.0, 6, 0.5) for k in (0, 1)))
    assert len(server.recorded(1, [played(), behind], Quota(2), 2)) == 2
    sites = tuple(Episode(site, k, 1.0, 3, 0.5) for k in (2, 3) for site in (0, 1))
    oracle = played(client=0, episodes=sites)
    assert len(Server(MEMBERS, sites=2).recorded(1, [oracle], Quota(2), 2)) == 1
    assert not server.counts


class Forger(Sites):
    """Client 1 records an episode of client 0 that is yet to come."""

    def round(self, teacher, quota, clients=None):
        replies = super().round(teacher, quota, clients)
        return [r._replace(episodes=(Episode(0, 10**12, 9e9, 1, 1.0),)) if r.client == 1 else r for r in replies]


def test_on_every_engine_a_forged_record_is_not_among_the_replies_of_a_round():
    server = Server([Participant("")] * 3)
    for _, replies, teacher, _ in rounds_of(Forger(3), server, [Quota(1)] * 3):
        assert [r.client for r in replies] == [0, 2]
        assert teacher["Q"][0, 0] % 10 == 1.0
    assert dict(server.counts) == {"refused/1/episodes": 3}


def test_of_clients_that_contradict_each_other_most_are_right():
    def member(print_, shape, name="W"):
        return Participant(print_, like={name: np.zeros(shape)})

    one = {i: member("a", (8, 2)) for i in range(4)}
    assert misfits(one, one_encoder=True) == {}
    assert misfits({**one, 2: member("a", (1, 2))}, one_encoder=False).keys() == {2}
    assert misfits({**one, 0: member("a", (8, 2), "V")}, one_encoder=False).keys() == {0}
    assert misfits({**one, 3: member("b", (9, 2))}, one_encoder=True).keys() == {3}
    different = {i: member(str(i), (8 + i, 2)) for i in range(4)}
    assert misfits(different, one_encoder=False) == {}
    assert misfits({**different, 1: member("1", (1, 7))}, one_encoder=False).keys() == {1}
    assert misfits({0: member("a", (8, 2)), 1: member("a", (9, 2))}, one_encoder=False).keys() == {1}


def test_nobody_cuts_off_the_rows_of_the_others():
    """Where all are cut to the rows of the smallest, a single client decides how many are left."""
    method = method_of(resolve({"env": "CartPole-v1", "method": "truncated-fedavg-qhd", "setting": "heterogeneous",
                                "dims": [80, 64, 96]}))  # fmt: skip
    assert method.least_rows == 64
    shapes = {0: (64, 2), 1: (500, 2), 2: (1, 2), 3: (63, 2), 4: (), 5: (80, 2)}
    members = {i: Participant(str(i), like={"W": np.zeros(shape)}) for i, shape in shapes.items()}
    members[6] = Participant("6")
    found = misfits(members, one_encoder=False, least_rows=method.least_rows)
    assert found.keys() == {2, 3, 4, 6}
    assert "its W has 1 rows, fewer than the smallest of the server's dims, 64" in found[2]
    assert 2 not in misfits(members, one_encoder=False)  # negative control
    others = ("fedqhd", "independent-qhd")
    assert not any(method_of(method.config.replace(method=name)).least_rows for name in others)


def test_numbers_of_numpy_from_an_agent_of_the_user_are_recorded_as_plain_ones(tmp_path):
    c = tiny(tmp_path, learner="online")
    clients, world = build(c)
    clients[0].agent.epsilon = np.float32(0.5)
    reply = clients[0].round(world.federation, None, Quota(2))
    assert [type(x) for x in reply.episodes[0]] == [int, int, float, int, float]
    assert len(make_server(c, world.members, world.public).recorded(0, [reply], Quota(2), 0)) == 1
