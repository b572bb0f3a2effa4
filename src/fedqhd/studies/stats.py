"""Statistics over seeds: interquartile means, stratified bootstrap intervals and probabilities of improvement.

They are those of Agarwal et al. (2021), computed with scipy; a test compares them with their library, rliable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from fedqhd.core.protocols import Array

RESAMPLES = 2000
LEVEL = 0.95


def iqm(x: Array, axis: int | None = None) -> Array:
    """Return the interquartile mean along an axis, or of all values if it is None; of up to three values, the mean."""
    return stats.trim_mean(x, 0.25, axis=axis)


def interval(tasks: Sequence[Array], statistic: Callable[..., Array], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of statistic(*tasks, axis=-1).

    Args:
        tasks: The values of all runs of each task. Runs are resampled within their task.
        statistic: A function of the tasks, vectorised over leading axes.
        seed: The seed of the resampling.

    Returns:
        The ends of the interval; both are the statistic itself if a task has only one run.
    """
    tasks = [np.asarray(t, float) for t in tasks]
    if min(len(t) for t in tasks) < 2:
        value = float(statistic(*(t[None] for t in tasks), axis=-1)[0])
        return value, value
    found = stats.bootstrap(
        tasks, statistic, n_resamples=RESAMPLES, confidence_level=LEVEL, method="percentile", vectorized=True, axis=-1,
        rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def pooled_iqm(*tasks: Array, axis: int = -1) -> Array:
    """Return the interquartile mean of the runs of all tasks together."""
    return iqm(np.concatenate(tasks, axis=axis), axis=axis)


def describe(x: Sequence[float]) -> dict[str, float]:
    """Return {iqm, lo, hi, mean, std} of the runs of one cell, rounded to three decimals."""
    values = np.asarray(x, float)
    lo, hi = interval([values], pooled_iqm)
    std = values.std(ddof=1) if len(values) > 1 else 0.0
    found = {"iqm": iqm(values), "lo": lo, "hi": hi, "mean": values.mean(), "std": std}
    return {name: round(float(v), 3) for name, v in found.items()}


def better(x: Array, y: Array, axis: int = -1) -> Array:
    """Return P(X > Y) + P(X = Y) / 2 over all pairs along the last axis: the Mann-Whitney U statistic over n m."""
    x, y = np.asarray(x)[..., :, None], np.asarray(y)[..., None, :]
    return ((x > y) + 0.5 * (x == y)).mean(axis=(-1, -2))


def probability_of_improvement(x: Sequence[Array], y: Sequence[Array], seed: int = 0) -> tuple[float, float, float]:
    """Return the probability that a run of x beats one of y on the same task, averaged over tasks, and its interval."""
    k = len(x)

    def mean_of_tasks(*both: Array, axis: int = -1) -> Array:
        return np.mean([better(a, b) for a, b in zip(both[:k], both[k:], strict=True)], axis=0)

    value = float(mean_of_tasks(*(np.asarray(t, float) for t in (*x, *y))))
    return value, *interval([*x, *y], mean_of_tasks, seed)


def performance_profile(tasks: Sequence[Array], at: Array) -> Array:
    """Return the share of runs with a score above each of `at`, averaged over tasks; same shape as `at`."""
    return np.mean([(np.asarray(t)[:, None] > at).mean(axis=0) for t in tasks], axis=0)


def band(runs: Array, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return the interquartile mean and its interval at each point of curves (runs, T); whole runs are resampled."""
    rng = np.random.default_rng(seed)
    drawn = iqm(runs[rng.integers(len(runs), size=(RESAMPLES // 10, len(runs)))], axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return iqm(runs, axis=0), low, high
