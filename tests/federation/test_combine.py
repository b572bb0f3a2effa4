"""How replies are stacked, weighted and combined, by hand, and what is refused on the way, word for word."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fedqhd.core import named
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Expected, Reply
from fedqhd.federation import location
from fedqhd.federation.aggregate import RULES, Rule, by_rows, rule_of, stack, weighted_mean


def reply(client, value, weight=1.0, name="Q"):
    return Reply(client, {name: value}, weight, 1, (), "", {})


def column(*values, weights=None):
    """Clients that report one number each."""
    return [reply(i, np.array([[v]]), w) for i, (v, w) in enumerate(zip(values, weights or [1.0] * 99, strict=False))]


def said(sentence):
    return pytest.raises(FedQHDError, match=f"^{re.escape(sentence)}$")


def test_arrays_are_stacked_in_client_order_and_double_precision():
    replies = [reply(2, np.array([5.0, 6.0], np.float32)), reply(0, np.array([1.0, 2.0], np.float32))]
    P = stack(replies, "Q")
    assert P.dtype == np.float64
    np.testing.assert_array_equal(P, [[1, 2], [5, 6]])
    assert stack([reply(0, np.array([1j], np.complex64))], "Q").dtype == np.complex128
    # Replies are compared by their clients alone, not by what they hold; of one client, the first comes first.
    np.testing.assert_array_equal(stack([reply(1, np.array([3.0])), reply(1, np.array([2.0]))], "Q"), [[3], [2]])


def test_what_cannot_be_stacked_is_refused_with_this_sentence():
    with said("no client replied: there is nothing to average"):
        stack([], "Q")
    with said("client 7 sent W of shape (3,), but client 4 sent (2,)"):
        stack([reply(7, np.ones(3), name="W"), reply(4, np.ones(2), name="W"), reply(5, np.ones(2), name="W")], "W")
    for bad in (np.nan, np.inf, -np.inf, complex(0, np.nan)):
        with said("client 5 sent a Q that is not finite: its learning diverged"):
            stack([reply(4, np.ones(2)), reply(5, np.array([1.0, bad]))], "Q")


@pytest.mark.parametrize("weights", [[0, 0], [2, -1], [math.inf, 1], [math.nan, 1], [-1, -1]])
def test_weights_that_are_none_are_refused_with_this_sentence(weights):
    with said(f"the clients' weights {weights} must be at least 0 and not all 0"):
        weighted_mean(column(1.0, 2.0, weights=weights), "Q")


def test_a_weight_of_zero_counts_for_nothing_and_any_sum_will_do():
    assert weighted_mean(column(1.0, 9.0, weights=[0.25, 0.0]), "Q") == 1.0
    assert weighted_mean(column(1.0, 9.0, weights=[6.0, 2.0]), "Q") == 3.0
    mixed = [reply(1, np.array([9.0]), 1.0), reply(0, np.array([1.0]), 3.0)]  # weights go with their clients
    assert weighted_mean(mixed, "Q") == 3.0
    assert weighted_mean([reply(1, np.array([2.0])), reply(1, np.array([4.0]))], "Q") == 3.0


def test_the_mean_is_summed_in_double_precision_and_has_the_type_of_the_replies():
    """In single precision, 1 vanishes beside 1e8."""
    mean = weighted_mean(column(*np.array([1e8, 1.0, -1e8], np.float32)), "Q")
    assert mean.dtype == np.float32
    assert mean == np.float32(1 / 3)
    whole = weighted_mean([reply(0, np.array([1j, 2.0])), reply(1, np.array([3j, 4.0]))], "Q")
    np.testing.assert_array_equal(whole, [2j, 3])


def test_clients_without_weight_have_no_vote_and_all_others_have_one():
    median = by_rows(location.median)
    assert median(column(1.0, 2.0, 9.0, weights=[0.5, 0.0, 7.0]), "Q") == 5.0
    assert median(column(1.0, 2.0, 9.0, weights=[0.0, 0.0, 0.0]), "Q") == 2.0  # nobody has a weight
    alone = median([reply(3, np.array([[1, 2, 4]], np.float32))], "Q")
    assert alone.dtype == np.float32
    np.testing.assert_array_equal(alone, [[1, 2, 4]])


def own_rule(function):
    """The rule that a function of the user's becomes."""
    return rule_of(named.name_of(function))


def test_an_own_rule_sees_a_real_row_per_client_and_its_result_has_the_form_of_the_replies():
    seen = []

    def highest(P):
        seen.append(P)
        return P.max(axis=0)

    rule = own_rule(highest)
    replies = [reply(1, np.array([[5, 2]], np.float32)), reply(0, np.array([[1, 6]], np.float32))]
    made = rule.combine(replies, "Q")
    np.testing.assert_array_equal(seen[0], [[1, 6], [5, 2]])
    np.testing.assert_array_equal(made, [[5, 6]])
    assert made.dtype == np.float32
    made = rule.combine([reply(0, np.array([1 + 4j], np.complex64)), reply(1, np.array([3 + 2j], np.complex64))], "Q")
    np.testing.assert_array_equal(seen[1], [[1, 4], [3, 2]])
    assert (made[0], made.dtype) == (3 + 4j, np.complex64)
    for kind in (int, np.uint8, np.float32):
        assert own_rule(lambda P, kind=kind: P.max(axis=0).astype(kind)).combine(column(2.0, 7.0), "Q") == 7.0
    assert own_rule(lambda P: [4.0]).combine(column(2.0, 7.0), "Q") == 4.0
    assert rule.name == named.name_of(highest)
    assert rule.select is None


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (np.ones(2), "returned float64 of shape (2,)"),
        (np.array([[1.0, 2, 3]]), "returned float64 of shape (1, 3)"),
        (np.array([1.0, np.nan, 3]), "returned float64 of shape (3,)"),
        (np.array([1.0, np.inf, 3]), "returned float64 of shape (3,)"),
        (np.array([1j, 2, 3]), "returned complex128 of shape (3,)"),
        (np.array([True, False, True]), "returned bool of shape (3,)"),
        (np.array(["1", "2", "3"]), "returned <U1 of shape (3,)"),
        (None, "returned object of shape ()"),
    ],
)
def test_what_an_own_rule_may_not_return_is_refused_with_this_sentence(returned, sentence):
    def rule(P):
        return returned

    with said(
        f"aggregate={named.name_of(rule)!r} {sentence} for rows (2, 3): it must return finite numbers of shape (3,)"
    ):
        own_rule(rule).combine([reply(i, np.ones((1, 3))) for i in range(2)], "Q")


def test_an_own_rule_that_fails_or_is_none_is_named():
    with said(
        "aggregate='own_things:failing_rule' raised ZeroDivisionError('nobody is left') for rows (2, 1): it must "
        "return finite numbers of shape (1,)"
    ):
        rule_of("own_things:failing_rule").combine(column(1.0, 2.0), "Q")
    with said("aggregate='own_things:FREQUENCIES' is a ndarray: it must be a function of rows (N, d)"):
        rule_of("own_things:FREQUENCIES")
    with pytest.raises(FedQHDError, match=r"^aggregate='own_things:no_rule' cannot be loaded"):
        rule_of("own_things:no_rule")
    with said(
        f"aggregate='meen' is unknown (did you mean 'mean'?): choose from {', '.join(RULES)} or give module:name"
    ):
        rule_of("meen")


def test_a_rule_selects_by_all_arrays_that_vote_together():
    asked = []

    def all_but_the_first(arrays):
        asked.append(arrays)
        return np.arange(len(arrays[0])) > 0

    rule = Rule("own", select=all_but_the_first)
    replies = [Reply(i, {"a": np.full(2, i), "b": np.full(3, -i)}, 1.0, 1, (), "", {}) for i in range(3)]
    assert rule.accepted(replies, None) == [False, True, True]
    assert [a.shape for a in asked.pop()] == [(3, 2), (3, 3)]
    silent = Expected((None,), "f", votes=False)
    assert rule.accepted(replies, {"a": silent, "b": Expected((3,), "f")}) == [False, True, True]
    assert [a.shape for a in asked.pop()] == [(3, 3)]
    counted = rule.accepted(replies, {"a": silent, "b": silent})  # nothing votes
    assert counted == [True] * 3
    assert not asked
    assert {type(x) for x in counted} == {bool}
