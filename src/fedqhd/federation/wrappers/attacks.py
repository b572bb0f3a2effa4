"""Attacks by lying clients who do not know the aggregation rule. What they know and falsify is a `Scene`.

The liars see all honest replies of the round and cooperate. They train as all others do; only their replies are false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fedqhd.core.protocols import Array

SCALE = 10.0
"""How many times larger than honest values the loud attacks are."""
LITTLE = 1.5
"""How many standard deviations of the honest replies colluders depart from their mean."""


class Scene(NamedTuple):
    """What a liar knows when it falsifies one array of its reply."""

    own: Array
    """The array that it would send if it were honest, of any shape."""
    honest: Array
    """The arrays of the honest clients, (H, ...)."""
    first: Array
    """The honest array of its first reply."""
    teacher: Array | None
    """The teacher's array of this name, if there is one of this shape."""
    rng: np.random.Generator
    accepts: Callable[[Array], bool] = lambda lie: True
    """Whether the rule in force would count the replies of all liars if all of them sent this array."""
    episodes: int = 0
    """The number of episodes that the liar has played."""
    name: str = "Q"
    """The name of the array in the reply."""


def size(s: Scene) -> float:
    """Return the root mean square of the honest values."""
    return float(np.sqrt(np.mean(np.abs(s.honest) ** 2)))


def advantages(values: Array) -> Array:
    """Return by how much each action is better than the mean over actions (the last axis)."""
    return np.asarray(values - values.mean(axis=-1, keepdims=True))


def noise(s: Scene) -> Array:
    """Add Gaussian noise with SCALE times the size of honest values."""
    return s.own + SCALE * size(s) * s.rng.standard_normal(s.own.shape)


def constant(s: Scene) -> Array:
    """Claim everywhere that the first action is worth SCALE times the size of honest values and the others nothing."""
    lie = np.zeros_like(s.own)
    lie[..., 0] = SCALE * size(s)
    return lie


def collude(s: Scene) -> Array:
    """Shift the honest mean by LITTLE standard deviations ("a little is enough", Baruch et al., 2019).

    The values of the actions that the mean prefers go down and those of the others go up, but each single coordinate
    still looks like an honest one.
    """
    mean = s.honest.mean(axis=0)
    return mean - LITTLE * s.honest.std(axis=0) * np.sign(advantages(mean).real)


FIXED: Mapping[str, Callable[[Scene], Array]] = {
    "sign-flip": lambda s: -s.own,
    "scaled": lambda s: -SCALE * s.own,
    "noise": noise,
    "constant": constant,
    "collude": collude,
    "stale": lambda s: s.first,
    "lazy": lambda s: s.own if s.teacher is None else s.teacher,
}
"""The attacks that are the same whatever the rule."""
