"""An episode that is being played. A round of steps may interrupt it, and a later round then goes on with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env
from fedqhd.envs.scaling import StateScaler


@dataclass
class Ongoing:
    """Where an episode stands, and what it has come to so far."""

    s: Array
    """The scaled state."""
    epsilon: float
    """The exploration rate at the beginning of the episode."""
    ret: float = 0.0
    """The sum of its rewards."""
    length: int = 0
    """Its length in steps of the environment."""
    actions: list[Any] = field(default_factory=list)
    """The actions, if the episode may be interrupted; otherwise none are kept."""


def played_again(env: Env, seed: int, scaler: StateScaler, epsilon: float, actions: Array) -> Ongoing:
    """Play an episode again up to where it was interrupted, so that its environment is where it was.

    Environments repeat an episode from its seed and its actions, which are therefore all that is stored of it.

    Args:
        env: The environment.
        seed: The seed of the episode.
        scaler: The scaling of states.
        epsilon: The exploration rate at its beginning.
        actions: Its actions so far, at least one: numbers (k,) or vectors (k, size).

    Raises:
        ValueError: If the environment does not have these actions, or does not repeat the episode.
    """
    check_actions(env, actions)
    state, _ = env.reset(seed=seed)
    episode = Ongoing(scaler(state), epsilon)
    for t, a in enumerate(actions if actions.ndim > 1 else actions.tolist()):
        state, reward, terminated, truncated, info = env.step(a)
        episode.ret += float(reward)
        episode.length += int(info.get("env_steps", 1))
        if terminated or truncated:
            raise ValueError(f"an open episode of {len(actions)} actions ended after {t + 1} when it was played again")
    episode.s = scaler(state)
    episode.actions = list(actions) if actions.ndim > 1 else actions.tolist()
    return episode


def check_actions(env: Env, actions: Array) -> None:
    """Raise ValueError unless the stored actions of an episode are actions of its environment."""
    space: Any = env.action_space
    if isinstance(space, spaces.Discrete):
        fits = actions.ndim == 1 and actions.dtype.kind in "iu" and actions.min() >= 0 and actions.max() < space.n
    else:
        fits = actions.shape[1:] == space.shape and actions.dtype.kind in "fiu" and bool(np.isfinite(actions).all())
    if not fits:
        raise ValueError(f"the actions of its open episode, {actions.dtype} {actions.shape}, are not in {space}")
