"""Environments small enough to be learned in a second."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

CORRIDOR = "fedqhd-test/Corridor-v0"


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor: -0.1 a step, 1 at the end. Optimal: about 0.5; at random: below -1."""

    observation_space = Box(-1.0, 1.0, (1,), np.float64)
    action_space = Discrete(2)
    step_size = 0.2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.9, 0.5)
        return np.array([self.x]), {}

    def step(self, action):
        self.x = max(-1.0, self.x + (self.step_size if action == 1 else -self.step_size))
        there = self.x >= 1.0
        return np.array([min(self.x, 1.0)]), 1.0 if there else -0.1, there, False, {}


gymnasium.register(CORRIDOR, entry_point=Corridor, max_episode_steps=20)
