"""Replay: double Q-learning on minibatches of stored transitions, as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.memory import Replay
from fedqhd.agents.qhd import SteppingQHD
from fedqhd.agents.settings import (
    Compilation,
    Exploration,
    Minibatches,
    StepSize,
    StoredFeatures,
    storage,
)
from fedqhd.agents.td import double_q_target, semi_gradient, td_error
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array, Transition
from fedqhd.core.settings import setting
from fedqhd.linalg.real_rows import real_view


@dataclass(frozen=True)
class ReplaySettings(StoredFeatures, Minibatches, StepSize, Compilation, Exploration):
    """The settings of `learner=replay`."""

    title: ClassVar[str] = "replay"

    target_every: int = setting(1, "episodes between target syncs, tau")


class ReplayQHD(SteppingQHD):
    """Double Q-learning on minibatches of a replay memory, with target weights W_target."""

    name: ClassVar[str] = "replay"
    Settings = ReplaySettings
    STATE = ("W_target", "_steps", "memory")

    @classmethod
    def batch(cls, settings: ReplaySettings) -> int:
        return settings.batch_size

    @classmethod
    def smallest(cls, c: Config) -> ReplaySettings:
        return c.part(cls.Settings, batch_size=1, update_every=1)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.W_target = self.W.copy(order="F")
        self._target_rows = real_view(self.W_target)
        self._phi_next = np.zeros_like(self._last.phi)
        self._steps = 0
        c, self.stored = self.settings, storage(self.settings, self.encoder)
        self.memory = Replay(c.replay_size, self.encoder.n, self._last, self.stored)
        # Scratch space for the features of a minibatch, used if the memory stores none.
        rows = c.batch_size if self.stored == "recompute" else 0
        self._batch: Array = np.zeros((rows, len(self._last.phi)), np.float32)
        self._u = np.zeros(c.batch_size)
        self.sync_target()

    def observe(self, t: Transition) -> None:
        memory, B = self.memory, self.settings.batch_size
        memory.add(t)
        self._steps += 1
        if memory.size < B or self._steps % self.settings.update_every:
            return
        u = self._rng.random(B)
        if not self.encoder.fused:
            delta = self._plain_step(kernels.draw_rows(u, memory.size))
        elif self.stored == "recompute":
            delta = kernels.replay_step(
                *self._last.args, memory.s, memory.a, memory.r, memory.discount, memory.s_next,
                u, memory.size, self.eta, self._rows, self._target_rows, self._batch,
            )  # fmt: skip
        else:
            delta = kernels.stored_step(
                *self._last.args, memory.X, memory.scale, memory.joined, memory.a, memory.r, memory.discount,
                memory.s_next, u, memory.size, self.eta, self._rows, self._target_rows, self._N_target,
                self._unit_target, self._phi_next,
            )  # fmt: skip
        self._learned(delta, t)

    def in_kernel(self) -> Any:
        if not self.encoder.fused:
            return None
        m, c = self.memory, self.settings
        counts = m.counts(self._steps, self.updates)
        shared = self._encoded(), m.ring(), counts, self._u, c.update_every, self.eta, self._target_rows
        if self.stored == "recompute":
            return kernels.Recomputed(*shared, self._batch)
        return kernels.Stored(*shared, self._N_target, self._unit_target, self._phi_next)

    def played(self, record: Any, actions: int, z: Array) -> None:
        self._steps, self.updates = self.memory.take(record.counts)

    def _plain_step(self, rows: Array) -> float:
        """Take the same step in numpy, for features that no kernel can compute."""
        m, a = self.memory, self.memory.a[rows]
        W, W_target = self._rows.T, self._target_rows.T
        if self.stored == "recompute":
            X, X_next = self.encoder.features(m.s[rows]), self.encoder.features(m.s_next[rows])
        else:
            X, X_next = m.X[rows], m.X[(rows + 1) % len(m.X)]
            ends = ~m.joined[rows] & (m.discount[rows] > 0)
            X_next[ends] = self.encoder.features(m.s_next[rows[ends]])
        y = double_q_target(m.r[rows], m.discount[rows], X_next @ W, X_next @ W_target)
        delta = td_error(y, X @ W, a)
        self._rows[:] = semi_gradient(W, X, a, delta, self.eta).T
        return float(np.abs(delta).sum())

    def end_episode(self) -> None:
        super().end_episode()
        if self._episodes % self.settings.target_every == 0:
            self.sync_target()

    def sync_target(self) -> None:
        self._set_target(self.W)

    def _set_target(self, W: Array) -> None:
        """Set W_target together with its rounded copy for the kernel. W_target must not be changed in any other way."""
        self.W_target[:] = W
        self._N_target, self._unit_target = kernels.round_weights(self.memory.X, self._target_rows)

    def restored(self) -> None:
        super().restored()
        self.memory.check_actions(self.W.shape[1])
        self._set_target(self.W_target)
