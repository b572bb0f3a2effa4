"""What the checks of replies, records and introductions say, word for word, and where their limits are."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fedqhd.agents.client import SPLIT
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Expected, Quota, Reply
from fedqhd.federation import AnchorCompile, Participant, Terms
from fedqhd.federation.asked import Asked, check_record
from fedqhd.federation.terms import misfits, outvoted, shapes
from fedqhd.federation.validate import Refused, check_array, check_reply, check_teacher, need, number

MEMBERS = [Participant("a"), Participant("b", None)]
EXPECTS = {"Q": Expected((2, None), "f", least=-5.0)}
Q = np.arange(6.0).reshape(2, 3)
GOOD = Reply(0, {"Q": Q}, 1.0, 7, (), "a", {})


def refusal(check, *arguments):
    """(kind, sentence) of a refusal."""
    with pytest.raises(Refused) as refused:
        check(*arguments)
    return refused.value.kind, str(refused.value)


def test_a_condition_that_holds_is_needed_in_silence():
    need(True, "kind", "sentence")
    assert refusal(need, False, "kind", "sentence") == ("kind", "sentence")


def test_numbers_are_finite_and_real():
    for x in (0, -3, 2.5, np.int32(4), np.float32(0.5)):
        assert number(x)
    for x in (True, np.True_, math.nan, math.inf, 1j, "1", None, [1]):
        assert not number(x)


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"client": "0"}, "client", "'0' is not a client number"),
        ({"client": True}, "client", "True is not a client number"),
        ({"client": 1.0}, "client", "1.0 is not a client number"),
        ({"client": "x" * 50}, "client", "'" + 39 * "x" + " is not a client number"),
        ({"client": 2}, "client", "there are only clients 0 to 1"),
        ({"client": -1}, "client", "there are only clients 0 to 1"),
        ({"weight": "1"}, "weight", "its weight is '1', but must be a number of at least 0"),
        ({"weight": -0.5}, "weight", "its weight is -0.5, but must be a number of at least 0"),
        ({"weight": math.nan}, "weight", "its weight is nan, but must be a number of at least 0"),
        ({"weight": 2.0}, "weight", "its weight is 2.0, but should be 1.0"),
        ({"client": 1, "fingerprint": "b", "weight": 8}, "weight", "its weight is 8, but should be 7"),
        ({"client": 1, "fingerprint": "b", "weight": 7, "steps": "7"}, "weight", "its weight is 7, but should be '7'"),
        ({"fingerprint": "b"}, "fingerprint", "its fingerprint is 'b', but it began with 'a'"),
        ({"fingerprint": 3}, "fingerprint", "its fingerprint is 3, but it began with 'a'"),
        ({"payload": [1]}, "names", "it sent a list, not named arrays"),
        ({"payload": {}}, "names", "it sent [], but ['Q'] is expected"),
        ({"payload": {"Q": Q, "W": Q}}, "names", "it sent ['Q', 'W'], but ['Q'] is expected"),
        ({"payload": {"Q": [1.0]}}, "type", "its Q is a list, not an array"),
        ({"payload": {"Q": Q.T}}, "shape", "its Q is of shape (3, 2), but (2, None) is expected"),
    ],
)  # fmt: skip
def test_a_reply_is_refused_with_this_sentence(changes, kind, sentence):
    assert refusal(check_reply, GOOD._replace(**changes), MEMBERS, EXPECTS, 100.0) == (kind, sentence)


def test_replies_at_the_limits_are_accepted():
    for reply in (
        GOOD, GOOD._replace(client=np.int64(0)), GOOD._replace(client=1, fingerprint="b", weight=7.0),
        GOOD._replace(client=1, fingerprint="b", weight=0, steps=0),
    ):  # fmt: skip
        check_reply(reply, MEMBERS, EXPECTS, 5.0)
    for payload in ({}, {"Q": Q, "W": 1j * Q}):  # nothing is known of the clients or of what they send
        check_reply(GOOD._replace(client=99, weight=0.0, payload=payload), None, None, 5.0)
    with pytest.raises(Refused):
        check_reply(GOOD._replace(payload={"Q": Q > 1}), None, None, 5.0)


REAL, COMPLEX = Expected((2, None), "f", least=-5.0), Expected((2, 3), "c")


@pytest.mark.parametrize(
    ("value", "expected", "kind", "sentence"),
    [
        (3.0, REAL, "type", "its X is a float, not an array"),
        (Q > 1, REAL, "type", "its X is of type bool, not real numbers"),
        (1j * Q, REAL, "type", "its X is of type complex128, not real numbers"),
        (Q, COMPLEX, "type", "its X is of type float64, not complex numbers"),
        (Q.astype(">f8"), REAL, "type", "its X is of type >f8, not real numbers"),
        (Q.astype(np.longdouble), REAL, "type", f"its X is of type {np.dtype(np.longdouble)}, not real numbers"),
        ((1j * Q).astype(np.clongdouble), COMPLEX, "type",
         f"its X is of type {np.dtype(np.clongdouble)}, not complex numbers"),
        (Q > 1, None, "type", "its X is of type bool, not real numbers"),
        (Q.T, REAL, "shape", "its X is of shape (3, 2), but (2, None) is expected"),
        (Q[0], REAL, "shape", "its X is of shape (3,), but (2, None) is expected"),
        (Q[None], REAL, "shape", "its X is of shape (1, 2, 3), but (2, None) is expected"),
        (1j * Q[:, :2], COMPLEX, "shape", "its X is of shape (2, 2), but (2, 3) is expected"),
        (Q * np.array([1, np.nan, 1]), REAL, "not finite", "its X is not finite: did it diverge?"),
        (Q - np.array([np.inf, 0, 0]), REAL, "not finite", "its X is not finite: did it diverge?"),
        (Q + np.array([np.inf, 0, 0]), REAL, "not finite", "its X is not finite: did it diverge?"),
        (Q + np.array([complex(0, np.nan), 0, 0]), COMPLEX, "not finite", "its X is not finite: did it diverge?"),
        (20.5 * Q, REAL, "magnitude", "its X goes up to 102, beyond max_magnitude=100"),
        (-20.5 * Q, REAL, "magnitude", "its X goes up to 102, beyond max_magnitude=100"),
        (1j * 20.5 * Q, COMPLEX, "magnitude", "its X goes up to 102, beyond max_magnitude=100"),
        (Q - 5.5, REAL, "range", "its X goes down to -5.5, below -5"),
    ],
)  # fmt: skip
def test_an_array_is_refused_with_this_sentence(value, expected, kind, sentence):
    assert refusal(check_array, "X", value, expected, 100.0) == (kind, sentence)


def test_arrays_at_the_limits_are_accepted():
    for value, expected in (
        (Q - 5.0, REAL), (20.0 * Q, REAL), (Q[:, :0], REAL), (Q.astype(np.float16), REAL), (Q.astype(np.float32), None),
        (20j * Q, COMPLEX), (-20j * Q, COMPLEX), ((1j * Q).astype(np.complex64), COMPLEX), (1j * Q, None), (Q, None),
        (np.array(3.0), None), (-20.0 * Q, None), (Q + 1.0, REAL._replace(least=0.5)),
    ):  # fmt: skip
        check_array("X", value, expected, 100.0)


def test_a_teacher_that_cannot_be_installed_is_refused_with_this_sentence():
    anchors = AnchorCompile(np.zeros((2, 4)), 3)
    said = "the server's teacher cannot be installed: "
    for teacher, sentence in (
        ({}, "it lacks Q"),
        ({"Q": Q[0]}, "its Q is of shape (3,), but (2, 3) is expected"),
        ({"Q": Q, "more": np.array([np.nan])}, "its more is not finite: did it diverge?"),
        ({"Q": Q, "more": np.array(["x"])}, "its more is of type <U1, not real numbers"),
    ):
        with pytest.raises(FedQHDError, match=f"^{re.escape(said + sentence)}$"):
            check_teacher(anchors, teacher)
    for more in (np.array([True]), np.arange(3), np.arange(3, dtype=np.uint8), np.array([1j]), np.array(2.0)):
        check_teacher(anchors, {"Q": 1e300 * Q, "more": more})
    check_teacher(object(), {"anything": Q})  # of a federation that does not tell

    class AsLongAsAnother:
        def teaches(self, teacher):
            return {"Q": Expected((len(teacher["anchors"]), 3), "f")}

    check_teacher(AsLongAsAnother(), {"Q": Q, "anchors": Q})
    with pytest.raises(FedQHDError, match="its Q is of shape"):
        check_teacher(AsLongAsAnother(), {"Q": Q, "anchors": Q.T})


SECONDS = dict.fromkeys(SPLIT, 0.5)
RECORDED = Reply(3, {}, 1.0, 9, (Episode(3, 4, 1.0, 5, 0.5), Episode(3, 5, 1.0, 4, 0.4)), "a", SECONDS)
ASKED = Asked(3, Quota(2), 4)


def test_a_record_of_what_was_asked_for_is_accepted():
    check_record(RECORDED, ASKED)
    check_record(RECORDED, ASKED._replace(longest=5, before=4))
    pooled = tuple(Episode(3 + site, k, 0.0, 1, 1.0) for k in (0, 1) for site in (0, 1))
    check_record(RECORDED._replace(episodes=pooled, steps=4), ASKED._replace(sites=2, before=0))
    check_record(RECORDED._replace(episodes=(), steps=0), ASKED._replace(quota=Quota(), before=0))


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"client": 2}, "client", "it says that it is client 2"),
        ({"client": 3.0}, "client", "it says that it is client 3.0"),
        ({"episodes": list(RECORDED.episodes)}, "episodes", "its episodes are [Episode(.*, not a tuple"),
        ({"episodes": RECORDED.episodes[:1]}, "episodes", "it has records of 1 episodes, but was asked for 2"),
        ({"episodes": (RECORDED.episodes[0], 7)}, "episodes", "it has 7 for the record of an episode"),
        ({"episodes": (RECORDED.episodes[0], RECORDED.episodes[0])}, "episodes",
         "its episodes are not 2 in a row, of which the first is at most 4"),
        ({"episodes": RECORDED.episodes[::-1]}, "episodes",
         "its episodes are not 2 in a row, of which the first is at most 4"),
        ({"steps": 10}, "steps", "it counts 10 steps, but its episodes have 9"),
        ({"steps": 9.0}, "steps", "it counts 9.0 steps, but its episodes have 9"),
        ({"seconds": [1]}, "seconds", "its times are [1]"),
        ({"seconds": {}}, "seconds", "its seconds/environment is missing"),
        ({"seconds": {**SECONDS, "acting": -1.0}}, "seconds",
         "its seconds/acting is -1.0, but must be a number from 0 to 1e+08"),
        ({"seconds": {**SECONDS, "idling": 1.0}}, "seconds", "it has 'seconds/idling', which is unknown"),
    ],
)  # fmt: skip
def test_a_record_is_refused_with_this_sentence(changes, kind, sentence):
    told, said = refusal(check_record, RECORDED._replace(**changes), ASKED)
    assert told == kind
    assert re.fullmatch(re.escape(sentence).replace(r"\.\*", ".*"), said)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"client": 4}, "its client is 4, but must be a whole number from 3 to 3"),
        ({"episode": 6}, "its episode is 6, but must be a whole number from 0 to 5"),
        ({"episode": -1}, "its episode is -1, but must be a whole number from 0 to 5"),
        ({"ret": math.nan}, "its ret is nan, but must be a number from -1e+100 to 1e+100"),
        ({"length": 10}, "its length is 10, but must be a whole number from 0 to 9"),
        ({"length": -1}, "its length is -1, but must be a whole number from 0 to 9"),
        ({"epsilon": "1"}, "its epsilon is '1', but must be a number from -1e+100 to 1e+100"),
    ],
)
def test_an_episode_is_refused_with_this_sentence(changes, sentence):
    first, second = RECORDED.episodes
    forged = RECORDED._replace(episodes=(first, second._replace(**changes)))
    told = refusal(check_record, forged, ASKED._replace(longest=9))
    assert told == ("episodes", f"in the record of an episode, {sentence}")


BY_STEPS = Asked(3, Quota(steps=100), 300, longest=200)
"""A round of 100 steps after at most 300 steps."""


def of_steps(*lengths, first=7, steps=100, client=3):
    records = tuple(Episode(client, first + k, 1.0, length, 0.5) for k, length in enumerate(lengths))
    return RECORDED._replace(episodes=records, steps=steps)


@pytest.mark.parametrize(
    "lengths",
    [
        (),  # one episode is open all the time
        (200,),  # the first one began before the round
        (1,),  # and another one is open for the rest of it
        (150, 99),  # the first one ended with the first step
        (40, 60),
        (1,) * 100,
    ],
)
def test_a_record_of_a_round_of_steps_is_accepted(lengths):
    check_record(of_steps(*lengths), BY_STEPS)


def test_a_record_of_a_round_of_steps_may_overshoot_by_an_action():
    repeated = BY_STEPS._replace(repeat=4)
    for steps in (100, 103):
        check_record(of_steps(40, steps=steps), repeated)
    for steps in (99, 104):
        assert refusal(check_record, of_steps(40, steps=steps), repeated)[0] == "steps"


def test_the_environments_of_an_oracle_take_turns_in_rounds_of_steps_too():
    """The round began in the second environment of episode 4, and takes 100 steps for each of the two."""
    turns = ((4, 4), (3, 5), (4, 5), (3, 6))
    records = tuple(Episode(client, k, 1.0, 40, 0.5) for client, k in turns)
    pooled = BY_STEPS._replace(sites=2)
    check_record(of_steps(steps=200)._replace(episodes=records), pooled)
    skipped = (records[0], *records[2:])
    assert refusal(check_record, of_steps(steps=200)._replace(episodes=skipped), pooled)[0] == "episodes"


@pytest.mark.parametrize(
    ("forged", "kind", "sentence"),
    [
        (of_steps(40, steps=99), "steps", "it counts 99 steps, but was asked for 100"),
        (of_steps(40, steps=101), "steps", "it counts 101 steps, but was asked for 100"),
        (of_steps(40, steps=100.0), "steps", "it counts 100.0 steps, but was asked for 100"),
        (of_steps(40, steps=None), "steps", "it counts None steps, but was asked for 100"),
        (of_steps(40, 100), "steps", "its 2 episodes of 140 steps in all do not fit into a round of 100 steps"),
        (of_steps(1, 50, 50), "steps", "its 3 episodes of 101 steps in all do not fit into a round of 100 steps"),
        (of_steps(*[1] * 101), "episodes", "it has records of 101 episodes, but at most 100 end in 100 steps"),
        (of_steps(0), "episodes",
         "in the record of an episode, its length is 0, but must be a whole number from 1 to 200"),
        (of_steps(201), "episodes",
         "in the record of an episode, its length is 201, but must be a whole number from 1 to 200"),
        (of_steps(40, first=301), "episodes",
         "its episodes are not 1 in a row, of which the first is at most 300"),
        (of_steps(40, first=400), "episodes",
         "in the record of an episode, its episode is 400, but must be a whole number from 0 to 399"),
        (of_steps(40, client=2), "episodes",
         "in the record of an episode, its client is 2, but must be a whole number from 3 to 3"),
    ],
)  # fmt: skip
def test_a_record_of_a_round_of_steps_is_refused_with_this_sentence(forged, kind, sentence):
    assert refusal(check_record, forged, BY_STEPS) == (kind, sentence)


def test_no_episode_is_longer_than_all_steps_so_far_or_open_for_longer_than_one_can_be():
    check_record(of_steps(160), BY_STEPS._replace(before=60))
    assert refusal(check_record, of_steps(161), BY_STEPS._replace(before=60))[0] == "steps"
    check_record(of_steps(), BY_STEPS._replace(longest=101))
    assert refusal(check_record, of_steps(), BY_STEPS._replace(longest=100))[0] == "steps"


def member(fingerprint="a", shape=(4, 2), name="W", dtype=np.float32):
    return Participant(fingerprint, like={name: np.zeros(shape, dtype)})


def test_the_terms_are_those_of_the_smallest_client():
    small, large = member("b", (3, 2)), member("c", (4, 2))
    assert Terms.of([large, small]) == Terms(False, small.like)
    assert Terms.of([large, large]).same_encoder
    assert shapes(small.like) == {"W": ("<f4", (3, 2))}


def test_clients_that_do_not_fit_are_told_why():
    assert misfits({0: member(), 1: member(), 2: member(shape=(5, 2))}, False) == {
        2: "it has parameters of other shapes than the clients with the same fingerprint"
    }
    assert misfits({0: member(), 1: member(), 2: member(dtype=np.float64)}, False).keys() == {2}
    assert misfits({2: member(), 0: member("b"), 1: member("c", (4, 3))}, False) == {
        1: "its W has the columns (3,), unlike that of the other clients"
    }
    assert misfits({0: member(), 1: member(), 2: member("c")}, True) == {
        2: "its fingerprint c is not that of the others, but all need one encoder"
    }
    assert misfits({0: member(), 1: member("b", (9, 9), "V")}, False) == {}
    both = misfits({3: member("d", (4, 3)), 0: member(), 1: member(), 2: member(shape=(5, 2))}, False)
    assert list(both) == [2, 3]
    assert misfits({0: member(shape=(6, 2))}, False, least_rows=7) == {
        0: "its W has 6 rows, fewer than the smallest of the server's dims, 7, and would cut off the rows of all others"
    }
    assert misfits({0: member(shape=(7, 2))}, False, least_rows=7) == {}


def test_of_equally_common_values_the_first_clients_counts():
    assert outvoted({}) == []
    assert outvoted({2: "x", 0: "y"}) == [2]
    assert outvoted({0: "x", 1: "y", 2: "y"}) == [0]
    assert outvoted({5: "x", 3: "y", 4: "z"}) == [5, 4]
