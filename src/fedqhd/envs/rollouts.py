"""States that random play, or any other policy, visits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env, random_action

ROLLOUT_STEPS = 5_000
"""Default number of random steps from which the scaling and the anchors are computed."""


def random_states(env: Env, steps: int, rng: np.random.Generator) -> Array:
    """Return the raw states (steps, n) that uniformly random actions visit."""
    return states_met(env, steps, rng, lambda s: random_action(env.action_space, rng))


def states_met(env: Env, steps: int, rng: np.random.Generator, act: Callable[[Array], Any]) -> Array:
    """Return the raw states (steps, n) that a policy `act` visits, one episode after another."""
    states = np.empty((steps, *env.observation_space.shape))  # type: ignore[misc]
    done = True
    for i in range(steps):
        if done:
            states[i], _ = env.reset(seed=int(rng.integers(2**31)))
            done = False
        else:
            states[i], _, terminated, truncated, _ = env.step(act(states[i - 1]))
            done = terminated or truncated
    return states
