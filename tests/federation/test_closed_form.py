"""Precision-weighted means and sums of normal equations, in numbers that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedqhd.core.protocols import Expected, Reply
from fedqhd.federation import NormalExchange, PrecisionCompile

ANCHORS = np.arange(4.0).reshape(2, 2)


class Site:
    """A client whose agent knows what it is asked for."""

    low, high = -2.0, 3.0
    G, b, W = np.ones((2, 3, 3)), np.ones((3, 2)), np.full((3, 2), 5.0)

    def __init__(self):
        self.agent, self.loaded = self, []

    def q(self, states):
        return states + 1.0

    def uncertainty(self, states):
        return 1.0 / (states + 4.0)

    def statistics(self):
        return self.G, self.b

    def params(self):
        return {"W": self.W}

    def load(self, p):
        self.loaded.append(p)


def precise(client, q, precision, weight=1.0):
    payload = {"Q": np.array([[q, 1.0]]), "precision": np.array([[precision, 1.0]])}
    return Reply(client, payload, weight, 1, (), "", {})


def test_precise_clients_report_the_inverse_of_their_uncertainty():
    report = PrecisionCompile(ANCHORS, 2).report(Site(), None)
    assert report.keys() == {"Q", "precision"}
    np.testing.assert_array_equal(report["Q"], [[1, 2], [3, 4]])
    np.testing.assert_allclose(report["precision"], [[4, 5], [6, 7]])


def test_a_precision_is_at_least_a_half_and_does_not_vote():
    due = {"Q": Expected((2, 2), "f"), "precision": Expected((2, 2), "f", least=0.5, votes=False)}
    assert PrecisionCompile(ANCHORS, 2).expects(None) == PrecisionCompile(ANCHORS, 2).expects({}) == due
    assert PrecisionCompile(ANCHORS).expects(None)["precision"].shape == (2, None)
    assert not PrecisionCompile(ANCHORS).is_mean


def test_the_mean_is_weighted_by_precision_and_by_the_clients_weights():
    """(1 * 10 + 3 * 2 * 4) / (10 + 3 * 2) = 34 / 16, and 1 where all say 1."""
    state, teacher = PrecisionCompile(ANCHORS, 2).aggregate(
        {"kept": ANCHORS}, [precise(0, 1.0, 10.0), precise(1, 4.0, 2.0, weight=3.0)]
    )
    assert state == {"kept": ANCHORS}
    assert teacher.keys() == {"Q"}
    np.testing.assert_allclose(teacher["Q"], [[34 / 16, 1.0]], rtol=1e-15)


def test_clients_report_their_sums_their_weights_and_the_range_of_their_returns():
    site = Site()
    report = NormalExchange(0.1, 1.0).report(site, None)
    assert report.keys() == {"G", "b", "range", "W"}
    assert (report["G"], report["b"], report["W"]) == (site.G, site.b, site.W)
    assert report["range"].tolist() == [-2, 3]


@pytest.mark.parametrize(("dtype", "kind", "p"), [(np.float32, "f", 3), (np.complex64, "c", 6)])
def test_the_sums_of_complex_features_are_twice_as_large(dtype, kind, p):
    exchange = NormalExchange(0.1, 1.0, {"W": np.zeros((3, 2), dtype)})
    weights, span = Expected((3, 2), kind, votes=False), Expected((2,), "f", votes=False)
    sums = {"G": Expected((2, p, p), "f", votes=False, gram=True), "b": Expected((p, 2), "f", votes=False)}
    assert exchange.expects(None) == exchange.expects({}) == {**sums, "range": span, "W": weights}
    assert exchange.teaches({}) == {"range": span, "W": weights}
    assert NormalExchange(0.1, 1.0).expects(None) is None
    assert NormalExchange(0.1, 1.0).teaches({}) == {}
    assert exchange.start() == {}


def sums(client, G, b, W, low=0.0, high=0.0):
    payload = {"G": np.asarray(G), "b": np.asarray(b), "W": np.asarray(W), "range": np.array([low, high])}
    return Reply(client, payload, 1.0, 1, (), "", {})


def test_one_sweep_by_hand():
    """Action 0: the sums are diag(1.5, 3.5) and (2, 8), so with lam = 0.5 the solution is (2 / 2, 8 / 4) = (1, 2), and
    half of it is added. Action 1: diag(0.5, 7.5) and (3, -8), so (3, -1). A liar claims another W; the median does not.
    """
    W = np.array([[10.0, 20], [30, 40]])
    replies = [
        sums(0, [np.diag([1.0, 3]), np.diag([0.5, 7])], [[1.0, 3], [4, -9]], W, -5.0, 2.0),
        sums(1, [np.diag([0.5, 0]), np.diag([0.0, 0])], [[1.0, 0], [2, 1]], W, -1.0, 9.0),
        sums(2, [np.diag([0.0, 0.5]), np.diag([0.0, 0.5])], [[0.0, 0], [2, 0]], -1e6 * W, -3.0, 4.0),
    ]
    state, teacher = NormalExchange(0.5, 0.5).aggregate({"kept": W}, replies)
    assert state == {"kept": W}
    assert teacher.keys() == {"W", "range"}
    np.testing.assert_allclose(teacher["W"], [[10.5, 21.5], [31.0, 39.5]], rtol=1e-15)
    assert teacher["range"].tolist() == [-5.0, 9.0]
    assert W[0, 0] == 10  # the replies are as they were


def test_a_sweep_is_computed_in_double_precision_whatever_the_clients_send():
    """1 / (1 + 0.1) in double precision, though 0.1 is another number in single precision."""
    one = sums(0, np.ones((1, 1, 1), np.float32), np.ones((1, 1)), np.zeros((1, 1), np.float32))
    W = NormalExchange(0.1, 1.0).aggregate({}, [one])[1]["W"]
    assert W.dtype == np.float64
    np.testing.assert_allclose(W, 1 / 1.1, rtol=1e-15)


def test_a_sweep_of_complex_weights_has_a_real_and_an_imaginary_part():
    """The rows of one action are Re W_0, Im W_0, Re W_1, Im W_1."""
    W = np.array([[1 + 2j, 0], [3 + 4j, 5j]], np.complex64)
    b = np.array([[2.0, 0], [4, 0], [6, 12], [8, 0]])
    made = NormalExchange(1.0, 0.5).aggregate({}, [sums(0, [np.eye(4), 2 * np.eye(4)], b, W)])[1]["W"]
    assert made.dtype == np.complex128
    np.testing.assert_allclose(made, [[1.5 + 3j, 0], [4.5 + 6j, 2 + 5j]], rtol=1e-15)


def test_a_client_installs_the_weights_and_the_range():
    site, W = Site(), np.ones((3, 2))
    NormalExchange(0.1, 1.0).install(site, {"W": W, "range": np.array([-7.0, 8.0], np.float32)})
    (loaded,) = site.loaded
    assert loaded.keys() == {"W"}
    assert loaded["W"] is W
    assert (site.low, site.high, type(site.low), type(site.high)) == (-7.0, 8.0, float, float)
