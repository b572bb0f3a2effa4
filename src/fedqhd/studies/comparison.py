"""Statistics over groups of runs: returns and learning curves with intervals, and probabilities of improvement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fedqhd.core.protocols import Array
from fedqhd.studies import stats
from fedqhd.studies.grouping import Group

MEASURES = ("final_return", "greedy_return")
POINTS = 200
"""The largest number of points of a learning curve."""


class Estimate(NamedTuple):
    """A statistic and its 95 % interval, both ends of which are NaN if there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def interval(self, digits: int) -> str:
        """Return the interval as a text with so many decimals; it is empty if there is none."""
        return "" if math.isnan(self.low) else f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"


class Curve(NamedTuple):
    """The learning curve of a group: the interquartile mean at some episodes, with its interval."""

    group: Group
    episodes: Array
    values: Array
    low: Array
    high: Array


class Improvement(NamedTuple):
    """The probabilities that a run of one group has a higher return than a run of another one."""

    label: str
    other: str
    envs: tuple[str, ...]
    """The environments that both have, over which probabilities are averaged."""
    final_return: Estimate
    greedy_return: Estimate


def mean_of(values: Array) -> Estimate:
    """Return the interquartile mean of the runs of a group, with an interval if there is more than one run."""
    found = stats.describe(values.tolist())
    return Estimate(found["iqm"], found["lo"], found["hi"]) if len(values) > 1 else Estimate(found["iqm"])


def curve_of(group: Group) -> Curve:
    """Return the learning curve of a group."""
    episodes = group.curves.shape[1]
    at = np.unique(np.linspace(1, episodes, min(episodes, POINTS)).round().astype(int))
    values, low, high = stats.band(group.curves[:, at - 1])
    if len(group.seeds) == 1:
        low, high = (np.full(len(at), np.nan) for _ in range(2))
    return Curve(group, at, values, low, high)


def probability(x: Sequence[Array], y: Sequence[Array]) -> Estimate:
    """Return the probability of improvement of x over y, which hold the runs of each environment."""
    p, low, high = stats.probability_of_improvement(x, y)
    return Estimate(p, low, high) if min(map(len, [*x, *y])) > 1 else Estimate(p)


def improvements(groups: Sequence[Group]) -> list[Improvement]:
    """Compare all groups that have an environment in common, pair by pair."""
    found = []
    for a, b in combinations(dict.fromkeys(group.label for group in groups), 2):
        ours, theirs = ({g.env: g for g in groups if g.label == label} for label in (a, b))
        envs = tuple(env for env in ours if env in theirs)
        if envs:
            both = [
                probability([getattr(ours[e], m) for e in envs], [getattr(theirs[e], m) for e in envs])
                for m in MEASURES
            ]
            found.append(Improvement(a, b, envs, *both))
    return found


def rows_of(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return a row for each group: its settings, the number of runs, and its returns with their intervals."""
    rows = []
    for g in groups:
        row = {"env": g.env, "group": g.label, **g.values, "seeds": len(g.seeds)}
        rows.append(row | _columns({m: mean_of(getattr(g, m)) for m in MEASURES}))
    return rows


def improvement_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return a row for each pair of groups, with the probabilities of improvement and their intervals."""
    return [
        {"group": i.label, "other": i.other, "envs": len(i.envs), **_columns({m: getattr(i, m) for m in MEASURES})}
        for i in improvements(groups)
    ]


def curve_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return a row for each point of each learning curve."""
    return [
        {"env": g.env, "group": g.label, "episode": int(e), "return": float(y), "low": float(low), "high": float(high)}
        for g, *columns in map(curve_of, groups)
        for e, y, low, high in zip(*columns, strict=True)
    ]


def _columns(estimates: dict[str, Estimate]) -> dict[str, float]:
    """Return estimates as three columns each."""
    suffixes = ("", "_low", "_high")
    return {name + s: v for name, one in estimates.items() for s, v in zip(suffixes, one, strict=True)}
