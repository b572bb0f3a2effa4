"""Normal equations of clients that do not send what they have computed."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import tiny
from fedqhd.core.protocols import Expected, Reply
from fedqhd.engines import LocalEngine
from fedqhd.federation import NormalExchange
from fedqhd.federation.validate import Refused, check_array
from fedqhd.linalg.grams import are_sums_of_squares, least_ridge
from fedqhd.linalg.normal import Factors
from fedqhd.runs import run as runs
from fedqhd.runs.run import train

P = 24
GRAM = Expected((2, P, P), "f", votes=False, gram=True)


def gram(rng, rows=40, scale=1.0):
    X = scale * rng.normal(size=(2, rows, P))
    return np.swapaxes(X, 1, 2) @ X


def with_eigenvalue(rng, value, largest=1.0):
    """Symmetric matrices with this smallest eigenvalue."""
    U = np.linalg.qr(rng.normal(size=(P, P)))[0]
    one = (U * np.append(np.linspace(0.1, 1.0, P - 1) * largest, value)) @ U.T
    return np.stack([gram(rng)[0], (one + one.T) / 2])


@pytest.mark.parametrize("rows", [0, 1, 5, 40])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4])
def test_sums_of_squares_are_accepted_whatever_their_rank_and_scale(rng, rows, scale):
    G = gram(rng, rows, scale)
    assert are_sums_of_squares((G + np.swapaxes(G, 1, 2)) / 2)


def test_what_is_no_sum_of_squares_is_refused(rng):
    G = gram(rng)
    G = (G + np.swapaxes(G, 1, 2)) / 2
    check_array("G", G, GRAM, 1e9)
    askew = G.copy()
    askew[1, 3, 5] *= 1 + 1e-12
    hollow = G.copy()
    hollow[0, 7, 7] = 0.0  # a row of zeros is possible only with zeros beside it
    for bad in (-G, askew, hollow, with_eigenvalue(rng, -1e-9), with_eigenvalue(rng, -1e3), G - 60 * np.eye(P)):
        with pytest.raises(Refused, match="its G is not a sum of squares") as refused:
            check_array("G", bad, GRAM, 1e9)
        assert refused.value.kind == "range"


def reply(client, G):
    W = np.zeros((P, 2))
    payload = {"G": G, "b": np.ones((P, 2)), "range": np.array([-1.0, 1.0]), "W": W}
    return Reply(client, payload, 1.0, 1, (), "a", {})


@pytest.mark.parametrize("largest", [1e9, 1e300])
@pytest.mark.parametrize("liars", [1, 5])
def test_what_is_accepted_can_be_solved_however_close_to_the_limit_it_is(rng, largest, liars):
    low, high = -largest, 0.0
    for _ in range(200):  # the smallest eigenvalue that is still accepted
        middle = (low + high) / 2
        accepted = are_sums_of_squares(with_eigenvalue(np.random.default_rng(1), middle, largest))
        low, high = (low, middle) if accepted else (middle, high)
    worst = with_eigenvalue(np.random.default_rng(1), high, largest)
    assert high < 0
    with pytest.raises(np.linalg.LinAlgError):
        Factors(worst.copy(), 1e-7)  # with the ridge of the settings alone, it would end the run
    replies = [reply(i, worst) for i in range(liars)] + [reply(9, np.zeros((2, P, P)))]
    _, teacher = NormalExchange(1e-7, 1.0).aggregate({}, replies)
    assert np.isfinite(teacher["W"]).all()


def test_the_ridge_of_honest_clients_is_that_of_the_settings(rng):
    assert least_ridge(gram(rng, 50_000, P**-0.5)) < 1e-9


def test_a_client_that_sends_no_sum_of_squares_is_left_out_and_the_run_goes_on(tmp_path, monkeypatch):
    class Lying(LocalEngine):
        def round(self, *args):
            first, *others = super().round(*args)
            return [first._replace(payload={**first.payload, "G": -first.payload["G"]}), *others]

    monkeypatch.setattr(runs, "LocalEngine", Lying)
    settings = {"setting": "homogeneous", "learner": "least-squares", "exchange": "statistics", "dims": [48]}
    summary = train(tiny(tmp_path, **settings))
    assert summary["replies"]["refused"] == {"0/range": 2}
