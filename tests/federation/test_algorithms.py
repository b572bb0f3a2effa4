"""What the two algorithms expect, send and teach, by hand, and which of them applies."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Expected, Reply
from fedqhd.federation import AnchorCompile, ParameterAverage, Terms, choose, weighted_mean
from fedqhd.federation.aggregate import RULES
from fedqhd.federation.fedqhd import averages

ANCHORS = np.arange(6.0).reshape(3, 2)


class Site:
    """A client whose agent keeps what it is given: values are the sums of states, parameters are one array."""

    def __init__(self):
        self.agent, self.fitted, self.loaded = self, [], []

    def q(self, states):
        return np.outer(states.sum(axis=1), [1.0, -1.0])

    def params(self):
        return {"W": np.ones((3, 2))}

    def load(self, p):
        self.loaded.append(p)

    def fit_anchors(self, anchors, Q):
        self.fitted.append((anchors, Q))


def replies(name, *values, fingerprints="aaa"):
    return [
        Reply(i, {name: v}, 1.0 + i, 1, (), f, {}) for i, (v, f) in enumerate(zip(values, fingerprints, strict=False))
    ]


def test_algorithm_1_exchanges_parameters():
    like = {"W": np.zeros((3, 2), np.complex64), "b": np.zeros(4, np.float32)}
    exchange, site = ParameterAverage(like), Site()
    described = {"W": Expected((3, 2), "c"), "b": Expected((4,), "f")}
    assert exchange.expects(None) == exchange.expects({}) == exchange.teaches({}) == described
    assert ParameterAverage().expects(None) is None
    assert ParameterAverage().teaches({}) == {}
    np.testing.assert_array_equal(exchange.report(site, None)["W"], np.ones((3, 2)))
    state, teacher = exchange.aggregate({"kept": ANCHORS}, replies("W", np.array([1.0]), np.array([4.0])))
    assert state == {"kept": ANCHORS}
    assert teacher == {"W": 3.0}  # (1 + 2 * 4) / 3
    assert exchange.aggregate({}, replies("V", np.array([7.0])))[1] == {"V": 7.0}
    exchange.install(site, teacher)
    assert site.loaded == [teacher]
    assert exchange.start() == {}


def test_weights_of_different_encoders_are_refused_with_this_sentence():
    sentence = "the clients' encoders differ: their weights cannot be averaged, only their values at anchors"
    for fingerprints in ("ab", "abc", "aab"):
        with pytest.raises(FedQHDError, match=f"^{re.escape(sentence)}$"):
            ParameterAverage().aggregate({}, replies("W", *[np.ones(2)] * len(fingerprints), fingerprints=fingerprints))


def test_algorithm_2_exchanges_values_at_anchors():
    exchange, site = AnchorCompile(ANCHORS, 2, RULES["median"].combine), Site()
    assert exchange.expects(None) == exchange.expects({}) == exchange.teaches({}) == {"Q": Expected((3, 2), "f")}
    assert AnchorCompile(ANCHORS).expects(None) == {"Q": Expected((3, None), "f")}
    np.testing.assert_array_equal(exchange.report(site, None)["Q"], [[1, -1], [5, -5], [9, -9]])
    state, teacher = exchange.aggregate({"kept": ANCHORS}, replies("Q", *(np.array([x]) for x in (1.0, 2.0, 9.0))))
    assert state == {"kept": ANCHORS}
    assert teacher == {"Q": 2.0}
    exchange.install(site, teacher)
    ((anchors, Q),) = site.fitted
    assert anchors is ANCHORS
    assert Q is teacher["Q"]
    assert exchange.start() == {}
    assert exchange.anchors_of(teacher) is exchange.reported_at(teacher) is exchange.reported_at(None) is ANCHORS


def test_an_exchange_at_other_anchors_is_the_same_otherwise():
    class Own(AnchorCompile):
        pass

    combine = RULES["median"].combine
    other = Own(ANCHORS, 2, combine).at(ANCHORS[:1])
    assert type(other) is Own
    assert (other.actions, other.combine, len(other.anchors)) == (2, combine, 1)


def test_only_a_mean_is_defined_everywhere():
    assert AnchorCompile(ANCHORS).is_mean
    assert not AnchorCompile(ANCHORS, 2, RULES["median"].combine).is_mean


def test_algorithm_1_needs_one_encoder_and_a_readout():
    W, network = {"W": np.zeros((3, 2))}, {"W": np.zeros((3, 2)), "b": np.zeros(2)}
    assert averages(Terms(True, W))
    for terms in (Terms(False, W), Terms(True, network), Terms(True, {"V": np.zeros(2)}), Terms(True, {})):
        assert not averages(terms)
    otherwise, median = AnchorCompile(ANCHORS), RULES["median"].combine
    chosen = choose(Terms(True, W), otherwise, median)
    assert isinstance(chosen, ParameterAverage)
    assert chosen.like is W
    assert chosen.combine is median
    assert choose(Terms(True, W), otherwise).combine is weighted_mean
    assert choose(Terms(False, W), otherwise, median) is otherwise
