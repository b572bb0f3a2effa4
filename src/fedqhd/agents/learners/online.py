"""Online learning: one step of temporal-difference learning on each transition as it is met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.qhd import SteppingQHD
from fedqhd.agents.settings import Compilation, Exploration, StepSize
from fedqhd.core.protocols import Transition


@dataclass(frozen=True)
class OnlineSettings(StepSize, Compilation, Exploration):
    """The settings of `learner=online`."""


class OnlineQHD(SteppingQHD):
    """One TD step on the transition just met: no replay, no target network."""

    name: ClassVar[str] = "online"
    Settings = OnlineSettings

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._phi_next = np.zeros_like(self._phi)

    def observe(self, t: Transition) -> None:
        self._look(t.s)
        if not self.encoder.fused:
            self._phi_next[:] = self.encoder.features(t.s_next[None])[0]
        delta = kernels.online_step(*self._args, *t, self.eta, self._seen, self._phi, self._phi_next, self._rows)
        self._learned(delta, t)
        # Phi(s') is the Phi(s) of the next step.
        self._phi, self._phi_next = self._phi_next, self._phi
        self._seen[:] = t.s_next
