"""Rollouts without learning: an environment of Gymnasium whose steps are compiled, with the same bits as its own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from fedqhd import kernels
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env
from fedqhd.envs.compiled import NotCompiled, Twin
from fedqhd.envs.scaling import StateScaler


class Quick(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Resets the environment and lets its compiled twin take the steps, which the environment itself does not see."""

    def __init__(self, env: Env, twin: Twin) -> None:
        super().__init__(env)
        self._twin, self._elapsed = twin, 0
        self._z = np.empty(twin.n, np.float32)

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        found = self.env.reset(**options)
        self._world, self._elapsed = self._twin.world(), 0
        return found

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        world = self._world
        reward, terminated, steps = kernels.advance(world, int(action), world.limit - self._elapsed, self._z)
        self._elapsed += steps
        truncated = self._elapsed >= world.limit
        return world.observation.copy(), reward, terminated, truncated, {"env_steps": steps}


def quick(env: Env) -> Env:
    """Return an environment with the same steps that takes them faster, or the same one if it has no compiled step.

    It cannot be drawn while it is played.
    """
    zeros = np.zeros(env.observation_space.shape or ())
    ones = np.ones_like(zeros)
    try:
        return Quick(env, Twin(env, StateScaler(zeros, ones, zeros, ones)))
    except NotCompiled:
        return env
