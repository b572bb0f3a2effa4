"""Samples of states on which values are compared: of random play, of the whole box, and of trained policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedqhd.agents.policy import Policy
from fedqhd.core.protocols import Array
from fedqhd.envs.rollouts import random_states, states_met
from fedqhd.envs.scaling import StateScaler

SOURCES = ("rollouts", "box", "policy")
EPSILON = 0.1
"""The share of random actions among those of the policies, so that they also visit states beside their path."""


def policy_states(policies: Sequence[Policy], steps: int, rng: np.random.Generator) -> Array:
    """Play policies in their environment and return the states that they visit.

    Args:
        policies: Policies of one environment; each visits about the same number of states.
        steps: The number of states.
        rng: The generator of episodes and exploration.

    Returns:
        Raw states, (steps, n).
    """
    env = policies[0].make_env()
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    shares = np.diff(np.linspace(0, steps, len(policies) + 1).astype(int))

    def met(policy: Policy, share: int) -> Array:
        def act(s: Array) -> int:
            return int(rng.integers(actions) if rng.random() < EPSILON else policy.predict(s)[0])

        return states_met(env, share, rng, act)

    states = np.vstack([met(p, k) for p, k in zip(policies, shares, strict=True) if k])
    env.close()
    return states


def sample(scaler: StateScaler, policies: Sequence[Policy], k: int, rng: np.random.Generator) -> dict[str, Array]:
    """Return k scaled states, (k, n), for each name in SOURCES."""
    env = policies[0].make_env()
    rollouts = random_states(env, k, rng)
    env.close()
    box = rng.uniform(scaler.low, scaler.high, (k, len(scaler.low)))
    raw = (rollouts, box, policy_states(policies, k, rng))
    return {name: scaler(s) for name, s in zip(SOURCES, raw, strict=True)}
