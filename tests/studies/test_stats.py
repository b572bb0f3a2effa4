"""The statistics, by hand and beside rliable."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedqhd.studies import stats

METHODS = {"ours": 0.6, "theirs": 0.4}


@pytest.fixture(scope="module")
def runs():
    """Ten runs on each of four tasks of different spread, (10, 4) for each method."""
    rng = np.random.default_rng(3)
    return {m: level + rng.normal(size=(10, 4)) * [0.05, 0.1, 0.2, 0.4] for m, level in METHODS.items()}


def test_iqm_by_hand():
    assert stats.iqm(np.array([1000.0, 1, 2, 3, 4, 5, 6, -1000])) == 3.5
    assert stats.iqm(np.array([1.0, 2, 30])) == 11  # of three nothing is cut


def test_describe_by_hand():
    found = stats.describe([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found["iqm"] == 3.0
    assert found["mean"] == 22.0
    assert found["std"] == pytest.approx(np.std([1, 2, 3, 4, 100], ddof=1), abs=1e-3)
    assert found["lo"] <= 3.0 <= found["hi"]
    assert stats.describe([7.0]) == {"iqm": 7.0, "lo": 7.0, "hi": 7.0, "mean": 7.0, "std": 0.0}


def test_better_by_hand():
    assert stats.better([3, 3], [1, 2]) == 1.0
    assert stats.better([1, 3], [2, 2]) == 0.5
    assert stats.better([2], [2, 1]) == 0.75


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=6), st.lists(st.integers(-5, 5), min_size=1, max_size=6))
def test_one_of_two_is_better(x, y):
    assert stats.better(x, y) + stats.better(y, x) == pytest.approx(1.0)
    assert stats.better(x, x) == pytest.approx(0.5)


def test_a_profile_falls_from_all_to_none(runs):
    at = np.linspace(-5, 5, 50)
    profile = stats.performance_profile(list(runs["ours"].T), at)
    assert (profile[0], profile[-1]) == (1.0, 0.0)
    assert (np.diff(profile) <= 0).all()


def test_the_bootstrap_is_stratified():
    """Two tasks without any spread among their runs: resampling within each changes nothing, across them it would."""
    tasks = [np.zeros(5), np.ones(5)]
    assert stats.interval(tasks, stats.pooled_iqm) == (0.5, 0.5)
    low, high = stats.interval([np.concatenate(tasks)], stats.pooled_iqm)
    assert low < high


def test_intervals_repeat(runs):
    tasks = list(runs["ours"].T)
    assert stats.interval(tasks, stats.pooled_iqm) == stats.interval(tasks, stats.pooled_iqm)
    assert stats.interval(tasks, stats.pooled_iqm) != stats.interval(tasks, stats.pooled_iqm, seed=1)


# --- beside rliable ---


@pytest.fixture(scope="module")
def rliable():
    """rliable bootstraps with arch, whose last version it allows decorates a plot in a way that pandas 3 took back."""
    decorators = pytest.importorskip("pandas.util._decorators")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decorators, "deprecate_kwarg", lambda *names, **others: lambda function: function)
        library, metrics = importlib.import_module("rliable.library"), importlib.import_module("rliable.metrics")
    return library, metrics


def test_aggregates_and_intervals_are_rliables(rliable, runs):
    library, metrics = rliable
    rng = np.random.RandomState(0)
    points, intervals = library.get_interval_estimates(
        runs, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=2000, random_state=rng
    )
    for method, x in runs.items():
        tasks = list(x.T)
        assert stats.pooled_iqm(*tasks) == pytest.approx(points[method][0], abs=1e-12)
        ours = stats.interval(tasks, stats.pooled_iqm)
        width = ours[1] - ours[0]
        # Two bootstraps of 2000 resamples: their ends differ by a few hundredths of the width.
        assert ours == pytest.approx(intervals[method][:, 0], abs=0.1 * width)


def test_the_probability_of_improvement_is_rliables(rliable, runs):
    _, metrics = rliable
    x, y = runs["ours"], runs["theirs"]
    p, low, high = stats.probability_of_improvement(list(x.T), list(y.T))
    assert p == pytest.approx(metrics.probability_of_improvement(x, y), abs=1e-12)
    assert low < p < high


@pytest.mark.slow
def test_the_interval_of_the_probability_of_improvement_is_rliables(rliable, runs):
    library, metrics = rliable
    x, y = runs["ours"], runs["theirs"]
    _, intervals = library.get_interval_estimates(
        {"both": (x, y)}, lambda a, b: np.array([metrics.probability_of_improvement(a, b)]), reps=2000,
        random_state=np.random.RandomState(0),
    )  # fmt: skip
    _, low, high = stats.probability_of_improvement(list(x.T), list(y.T))
    # Two bootstraps of 2000 resamples: their ends differ by a few hundredths of the width.
    assert (low, high) == pytest.approx(intervals["both"][:, 0], abs=0.1 * (high - low))


def test_profiles_are_rliables(rliable, runs):
    library, _ = rliable
    at = np.linspace(-0.5, 1.5, 21)
    theirs, _ = library.create_performance_profile({"ours": runs["ours"]}, at, reps=10)
    assert stats.performance_profile(list(runs["ours"].T), at) == pytest.approx(theirs["ours"], abs=1e-12)
