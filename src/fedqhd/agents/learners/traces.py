"""Online learning with eligibility traces: Sarsa(lambda) and Q(lambda).

    delta = r + discount Q(s', a') - Q(s, a)        Sarsa: the action a' that is taken next; Q: the greedy one
    E     = E, with Phi(s) added to, or put in place of, the trace of the action a
    W    <- W + eta delta E,    E <- discount lambda E

Q(lambda) is Watkins': it drops all traces before an exploratory action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.qhd import SteppingQHD
from fedqhd.agents.settings import Compilation, Exploration, StepSize
from fedqhd.agents.traced import traced
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array, Transition
from fedqhd.core.settings import setting


@dataclass(frozen=True)
class TracesSettings(StepSize, Compilation, Exploration):
    """The settings of `learner=traces`."""

    title: ClassVar[str] = "traces"

    control: str = setting(
        "sarsa", "learn the values of the policy itself, or of the greedy one", choices=("sarsa", "q")
    )
    trace_decay: float = setting(0.8, "decay of the traces from one action to the next, lambda", at_least=0, at_most=1)
    traces: str = setting(
        "replacing",
        "whether the trace of a feature that occurs again starts anew or is added to",
        choices=("replacing", "accumulating"),
    )


class TracesQHD(SteppingQHD):
    """Sarsa(lambda) or Q(lambda), which assign a reward to the states before it, too.

    The next action is chosen when a transition is observed, since Sarsa learns from it.
    """

    name: ClassVar[str] = "traces"
    Settings = TracesSettings
    STATE = ("_E", "_ahead", "_s_ahead")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._traced = traced(self.encoder, self._rows)
        self._E = self._traced.E
        self._ahead = -1
        """The action that was chosen for the state `_s_ahead`; -1 if none was."""
        self._s_ahead = np.full(self.encoder.n, np.nan, np.float32)

    @classmethod
    def memory_bytes(cls, c: Config, n: int, D: int, actions: int) -> int:
        """Return the bytes of the traces, of their list and of the encoder."""
        return super().memory_bytes(c, n, D, actions) + 12 * D * actions

    def act(self, s: Array) -> int:
        if self._ahead >= 0 and np.array_equal(s, self._s_ahead):
            return self._ahead
        self._traced.forget()  # another episode
        self._traced.encode_next(s)
        a = self._choose(s)
        self._traced.advance()
        return a

    def _choose(self, s: Array) -> int:
        """Choose an action in the next state s, whose values are then in `_q`."""
        self._traced.values_next(self._q)
        u_explore, u_action = self._rng.random(), self._rng.random()
        self._ahead = self._finite(kernels.epsilon_greedy(self._q, self.epsilon, u_explore, u_action), s)
        self._s_ahead[:] = s
        return self._ahead

    def observe(self, t: Transition) -> None:
        now, q = self._traced, self._traced.value(t.a)
        now.encode_next(t.s_next)
        following = self._choose(t.s_next)
        best = float(self._q.max())
        greedy = float(self._q[following]) == best
        target = best if self.settings.control == "q" else float(self._q[following])
        delta = t.r + t.discount * target - q
        goes_on = greedy or self.settings.control == "sarsa"
        decay = t.discount * self.settings.trace_decay if goes_on else 0.0
        now.step(t.a, self.eta * delta, decay, self.settings.traces == "replacing")
        now.advance()
        self._learned(delta, t)

    def restored(self) -> None:
        super().restored()
        self._traced.restored()
        if self._ahead >= 0:
            self._traced.encode_next(self._s_ahead)
            self._traced.advance()
