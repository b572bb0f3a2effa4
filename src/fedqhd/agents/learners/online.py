"""Online learning: one step of temporal-difference learning on each transition when it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.qhd import SteppingQHD
from fedqhd.agents.settings import Compilation, Exploration, StepSize
from fedqhd.core.protocols import Array, Transition


@dataclass(frozen=True)
class OnlineSettings(StepSize, Compilation, Exploration):
    """The settings of `learner=online`."""


class OnlineQHD(SteppingQHD):
    """Takes one TD step on each transition, without a replay memory or target weights."""

    name: ClassVar[str] = "online"
    Settings = OnlineSettings

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._phi_next, self._q_next = np.zeros_like(self._last.phi), np.zeros_like(self._q)

    def observe(self, t: Transition) -> None:
        last = self._last
        if not last.fused:
            last.encode_unfused(t.s)
            self._phi_next[:] = self.encoder.features(t.s_next[None])[0]
        delta = kernels.online_step(
            *last.args, *t, self.eta, last.state, last.phi, self._phi_next, self._rows, self._q_next
        )
        self._learned(delta, t)
        # Phi(s') becomes Phi(s) in the next step.
        last.phi, self._phi_next = self._phi_next, last.phi
        last.state[:] = t.s_next

    def in_kernel(self) -> Any:
        if not self.encoder.fused:
            return None
        return kernels.Online(self._encoded(), self._phi_next, self._q_next, np.zeros(1, np.bool_), self.eta)

    def played(self, record: Any, actions: int, z: Array) -> None:
        self.updates += actions
