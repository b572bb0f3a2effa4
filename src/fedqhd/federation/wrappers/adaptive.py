"""Attacks by liars who know the aggregation rule, or the spread within which an honest client would stay.

They lie as much as they can without being left out, and in the direction that harms the policy: down with the actions
that the honest clients prefer, up with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedqhd.core.protocols import Array
from fedqhd.federation.wrappers.attacks import LITTLE, SCALE, Scene, advantages, size

LARGEST = 5.0
"""The size of the largest lie that is tried, in units of its direction. A rule that leaves nobody out accepts it."""
HALVINGS = 12
"""Steps of bisection, which find the largest accepted lie to 0.03 % of LARGEST."""
RARE = 0.2
"""The share of the anchors at which `rare` lies."""
PROBES = 20
"""The number of groups of anchors that `probe` tries."""
DRIFT = 0.02
"""By how many standard deviations of the honest replies `drift` goes further with each episode."""
CLAIM = 1000.0
"""How many times as many steps, or how much more precision, `claimed-weight` claims than it has."""


def largest_accepted(s: Scene, start: Array, direction: Array) -> Array:
    """Return start + t direction for the largest t up to LARGEST that the rule accepts, found by bisection.

    If not even `start` is accepted, it is returned all the same.
    """
    low, high = 0.0, LARGEST
    if s.accepts(start + high * direction):
        return start + high * direction
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if s.accepts(start + middle * direction) else (low, middle)
    return start + low * direction


def below(honest: Array) -> Array:
    """Return one standard deviation of the honest replies, against the actions that their mean prefers."""
    return np.asarray(-honest.std(axis=0) * np.sign(advantages(honest.mean(axis=0)).real))


def limit(s: Scene) -> Array:
    """Reverse the advantages of the honest mean as far as the rule accepts. Knows the rule and all honest replies."""
    mean = s.honest.mean(axis=0)
    return largest_accepted(s, mean, -advantages(mean))


def spread(s: Scene) -> Array:
    """Depart from the honest mean along the honest spread as far as the rule accepts.

    This is "a little is enough" (Baruch et al., 2019) with the z that the rule in force allows. It hurts most where the
    honest clients disagree, because there a small lie turns the policy.
    """
    return largest_accepted(s, s.honest.mean(axis=0), below(s.honest))


def sybil(s: Scene) -> Array:
    """Stand beside the honest client that is furthest from the others, and lie from there as far as the rule accepts.

    With that client the liars look like a cluster, so that a rule takes it for the centre and the others for outliers.
    """
    apart = [np.linalg.norm(advantages(x - s.honest.mean(axis=0))) for x in s.honest]
    beside = s.honest[int(np.argmax(apart))]
    return largest_accepted(s, beside, -advantages(beside))


def min_max(s: Scene) -> Array:
    """Depart from the honest mean until as far from some honest client as the furthest two are from each other.

    This is the min-max attack of Shejwalkar and Houmansadr (2021), which knows the honest replies but no rule.
    """
    mean, direction = s.honest.mean(axis=0), below(s.honest)
    widest = max(np.linalg.norm(a - b) for a in s.honest for b in s.honest)

    def within(lie: Array) -> bool:
        return bool(max(np.linalg.norm(lie - x) for x in s.honest) <= widest)

    return largest_accepted(s._replace(accepts=within), mean, direction)


def rare(s: Scene) -> Array:
    """Reverse the honest advantages, but only at the anchors where the honest clients differ most.

    Those are states that few clients have visited. The lie goes as far as the rule accepts.
    """
    mean = s.honest.mean(axis=0)
    differ = s.honest.std(axis=0).reshape(len(mean), -1).sum(axis=1)
    chosen = differ >= np.quantile(differ, 1 - RARE)
    direction = np.zeros_like(mean)
    direction[chosen] = -advantages(mean[chosen]) * LARGEST  # a few anchors leave room for a larger lie at each
    return largest_accepted(s, mean, direction)


def probe(s: Scene) -> Array:
    """Find out where the rule does not look.

    At one group of anchors after the other, reverse the honest advantages and enlarge them, and keep what is accepted.
    The first groups are those where it matters most which action is better.
    """
    mean = s.honest.mean(axis=0)
    matters = np.linalg.norm(advantages(mean).reshape(len(mean), -1), axis=1)
    lie = mean.copy()
    for group in np.array_split(np.argsort(-matters, kind="stable"), min(PROBES, len(mean))):
        further = lie.copy()
        further[group] -= (1 + LARGEST) * advantages(mean[group])
        lie = further if s.accepts(further) else lie
    return lie


def values(s: Scene) -> Array:
    """Tell the truth about which action is better, and lie about how much the states are worth.

    At random, a state is worth SCALE times the size of the honest values more or less. The policy stays the same, so
    that nobody who only plays it can tell.
    """
    mean = s.honest.mean(axis=0)
    shift = SCALE * size(s) * s.rng.choice([-1.0, 1.0], size=(len(mean),) + (1,) * (mean.ndim - 1))
    return np.asarray(mean + shift)


def drift(s: Scene) -> Array:
    """Start as the honest mean and depart from it along the honest spread by a little more with each episode."""
    return np.asarray(s.honest.mean(axis=0) + DRIFT * s.episodes * below(s.honest))


def claimed_weight(s: Scene) -> Array:
    """Lie along the honest spread, and claim more of whatever gives a reply its weight (see `CLAIMING`)."""
    if s.name == "precision":
        return np.asarray(s.own * CLAIM)
    return np.asarray(s.honest.mean(axis=0) + LITTLE * below(s.honest))


ADAPTIVE: Mapping[str, Callable[[Scene], Array]] = {
    "limit": limit,
    "spread": spread,
    "sybil": sybil,
    "min-max": min_max,
    "rare": rare,
    "probe": probe,
    "values": values,
    "drift": drift,
    "claimed-weight": claimed_weight,
}
"""The attacks that know the rule or the spread of the honest replies."""
CLAIMING = ("claimed-weight",)
"""The attacks whose liars also claim CLAIM times as many steps as they took, where steps are the weight."""
