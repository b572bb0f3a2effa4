"""The exploration schedule that all agents share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exploration:
    """Epsilon falls geometrically, an episode at a time, to a floor."""

    epsilon_start: float = 1.0
    epsilon_end: float = 0.001
    epsilon_decay: float = 0.985

    def decayed(self, epsilon: float) -> float:
        return max(self.epsilon_end, epsilon * self.epsilon_decay)
