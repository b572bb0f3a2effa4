"""How long a run and its rounds are: in episodes, or in steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota

BY_EPISODES, BY_STEPS = ("episodes", "round_episodes"), ("steps", "round_steps")
"""The settings of the length of a run and of its rounds. A run has either those in episodes or those in steps."""


def without_effect(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the settings of the length of a run that have no effect, given the values of all four."""
    return BY_EPISODES if values["steps"] or values["round_steps"] else BY_STEPS


def without_idle_length(layers: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the length in steps of an environment's file, if the user's own is in episodes.

    Args:
        layers: All settings but those that were given for the run.
        wanted: The settings that are the user's own.
    """
    in_episodes = wanted.keys() & set(BY_EPISODES) and not wanted.keys() & set(BY_STEPS)
    return {k: v for k, v in layers.items() if not (in_episodes and k in BY_STEPS)}


def check_length(given: Mapping[str, Any], c: Config) -> None:
    """Raise FedQHDError if settings that were given for a run by steps say how long it is in episodes, too."""
    for name in BY_EPISODES:
        if name in given and name not in c:
            raise FedQHDError(
                f"{name}={given[name]} does nothing beside steps={c.steps}: give either episodes and round_episodes, "
                "or steps and round_steps"
            )


def whole_run(c: Config) -> Quota:
    """Return what each client plays in a run."""
    return Quota(c.get("episodes", 0), c.get("steps", 0))


def each_round(c: Config) -> Quota:
    """Return what each client plays in a round; the last round may be shorter."""
    return Quota(c.get("round_episodes", 0), c.get("round_steps", 0))


def plan_rounds(whole: Quota, each: Quota) -> list[Quota]:
    """Return what clients play in each round of a run; the last round may be shorter.

    Args:
        whole: What each client plays in the whole run.
        each: What each client plays in a round, in episodes or steps as `whole` is.
    """
    full, rest = divmod(whole.amount, each.amount)
    return [each] * full + ([each.of(rest)] if rest else [])


def planned(c: Config) -> list[Quota]:
    """Return what clients play in each round of a run."""
    return plan_rounds(whole_run(c), each_round(c))
