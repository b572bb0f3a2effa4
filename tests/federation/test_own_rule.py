"""A rule of aggregation of the user's own: by name, by object, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

import fedqhd
from conftest import ROOT, TINY
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from own_things import plain_mean

SETTING = {**TINY, "env": "CartPole-v1", "setting": "heterogeneous", "clients": 3}


def test_an_own_mean_is_the_mean(tmp_path):
    weights = []
    for rule in ("mean", "own_things:plain_mean", plain_mean, lambda P: P.mean(axis=0)):
        summary = fedqhd.train(**SETTING, aggregate=rule, out=str(tmp_path / str(len(weights))))
        weights.append(load_policy(summary["out"], 2).model.W)
    for W in weights[1:]:
        np.testing.assert_allclose(W, weights[0], rtol=1e-4, atol=1e-5)
    other = fedqhd.train(**SETTING, aggregate=lambda P: P.max(axis=0), out=str(tmp_path / "max"))
    assert not np.allclose(load_policy(other["out"], 2).model.W, weights[0], atol=1e-3)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("own_things:no_rule", r"has no 'no_rule'"),
        ("own_things:FREQUENCIES", "is a ndarray: it must be a function of rows"),
        (lambda P: P, r"of shape \(3, 80\) for rows \(3, 80\): .* shape \(80,\)"),
        (lambda P: P.mean(axis=0) * np.nan, "finite numbers"),
        ("own_things:failing_rule", r"'own_things:failing_rule' raised ZeroDivisionError\('nobody is left'\)"),
        ("meen", "aggregate='meen' is unknown .*did you mean 'mean'"),
    ],
)
def test_what_is_no_rule_is_refused(rule, says, tmp_path):
    with pytest.raises(FedQHDError, match=says) as error:
        fedqhd.train(**SETTING, aggregate=rule, out=str(tmp_path / "x"))
    assert "aggregate=" in str(error.value)


def test_the_worked_example_is_short():

    text = (ROOT / "examples" / "own_rule.py").read_text()
    assert len(text.splitlines()) < 30
