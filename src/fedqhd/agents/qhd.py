"""QHD: Q-learning with a fixed hyperdimensional encoder and a linear readout W."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedqhd import kernels
from fedqhd.agents.exploration import Exploration
from fedqhd.agents.memory import Replay
from fedqhd.agents.model import Readout
from fedqhd.agents.td import double_q_target, q_values, semi_gradient, td_error
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Model, Payload, Transition, real_view, under
from fedqhd.encoders import BaseEncoder
from fedqhd.linalg.ridge import Ridge


@dataclass(frozen=True)
class QHDSettings(Exploration):
    """What a QHD agent is told; the names are those of the command line."""

    eta: float = 0.1
    eta_decay: float = 1.0
    target_every: int = 1
    batch_size: int = 32
    update_every: int = 1
    replay_size: int = 10_000
    features: str = "recompute"
    lam: float = 1e-2
    compile: str = "warm-start"
    fit_lam: float = 0.3
    ridge: str = "given"
    sweeps: int = 10
    trace: float = 0.0
    double_q: str = "off"
    damping: float = 0.3
    refit: float = 0.1
    clip: str = "returns"
    explore: str = "epsilon"
    bonus: float = 0.1
    exchange: str = "model"


class QHD(ABC):
    """Q(s, a) = Re(Phi(s)^H w_a). Subclasses say how a transition is learned from."""

    def __init__(
        self, encoder: BaseEncoder, actions: int, settings: QHDSettings, generator: np.random.Generator
    ) -> None:
        self.encoder = encoder
        self.settings = settings
        self.epsilon = settings.epsilon_start
        self.updates = 0
        # Fortran order: each action's weights lie together, as the kernels read them.
        self.W: Array = np.zeros((encoder.D, actions), encoder.dtype, order="F")
        self._rng = generator
        self._episodes = 0
        self._args = encoder.kernel_args()
        self._rows = real_view(self.W)
        self._phi = np.zeros(self._rows.shape[1], np.float32)
        self._seen = np.full(encoder.n, np.nan, np.float32)
        self._q = np.zeros(actions, np.float32)
        self._anchors: Array = np.empty((0, encoder.n), np.float32)
        self._X: Array = np.empty((0, encoder.D))
        self._ridge: Ridge | None = None
        self._valued: tuple[Array, Array] | None = None

    def act(self, s: Array) -> int:
        self._look(s)
        u_explore, u_action = self._rng.random(), self._rng.random()  # half the time of random(2), the same numbers
        a = kernels.act(*self._args, s, self._seen, self._phi, self._rows, self._q, self.epsilon, u_explore, u_action)
        return self._finite(a, s)

    def _look(self, s: Array) -> None:
        """Phi(s), where no kernel can make it. Kernels then find that they have seen s."""
        if not self.encoder.fused and not np.array_equal(s, self._seen):
            self._phi[:] = self.encoder.features(s[None])[0]
            self._seen[:] = s

    def _see(self, s: Array) -> None:
        """Make _phi = Phi(s), unless it is: acting has likely made it."""
        self._look(s)
        kernels.refresh(*self._args, s, self._seen, self._phi)

    def _keep(self, s: Array, X: Array, row: int, scale: np.float32) -> None:
        """X[row] = Phi(s) / scale, as a memory has it: rounded, or as it is."""
        self._look(s)
        kernels.keep(*self._args, s, self._seen, self._phi, scale, X, row)

    def _unit(self, rounded: bool) -> np.float32:
        """What kept features count in: |Phi_d| is at most D^-1/2, and int8 reaches 127."""
        return np.float32(1 / (127 * np.sqrt(self.encoder.D)) if rounded else 1)

    def _finite(self, a: int, s: Array) -> int:
        """The kernels' choice of action, unless Q left them none."""
        if a < 0:
            if not np.isfinite(s).all():
                raise FedQHDError(f"the environment shows a state that is not finite, scaled {s.tolist()}")
            raise FedQHDError(
                f"Q(s, .) = {self._q.tolist()} is not finite: eta={self.settings.eta} is likely too large"
            )
        return int(a)

    def q(self, s: Array) -> Array:
        """Reference values in float64. The last states asked for are kept with their features and values: they are
        likely anchors, at which a teacher is to be compiled."""
        X = self._features(s)
        if self._valued is None or not np.array_equal(self._valued[0], self.W):
            self._valued = self.W.copy(), q_values(X, self.W)
        return self._valued[1].copy()

    def model(self) -> Model:
        return Readout(self.encoder, self.W.copy())

    @property
    def eta(self) -> float:
        """The step size of this episode."""
        return self.settings.eta * self.settings.eta_decay**self._episodes

    @abstractmethod
    def observe(self, t: Transition) -> None: ...

    def _learned(self, delta: float, t: Transition) -> None:
        self.updates += 1
        if not math.isfinite(delta):  # numpy's takes ten times as long for a single number
            raise FedQHDError(
                f"the TD error became {delta} (reward {t.r}, action {t.a}): eta={self.settings.eta} is likely too large"
            )

    def end_episode(self) -> None:
        self._episodes += 1
        self.epsilon = self.settings.decayed(self.epsilon)
        if self._episodes % self.settings.target_every == 0:
            self.sync_target()

    def sync_target(self) -> None:
        """Nothing is delayed unless a learner says so."""
        return

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Compile a teacher by one ridge solve; the factorisation is kept for the next round.

        overwrite:   W <- argmin ||Re(X W) - Q||^2 + lam ||W||^2
        warm-start:  W <- argmin ||Re(X W) - Q||^2 + lam ||W - W_i||^2
        """
        ridge = self.ridge(anchors)
        if self.settings.compile == "overwrite":
            self._set(ridge.solve(Q))
        else:
            self._set(self.W + ridge.solve(Q - self.q(anchors)))

    def _features(self, s: Array) -> Array:
        if not np.array_equal(s, self._anchors):
            self._anchors, self._X, self._ridge, self._valued = s.copy(), self.encoder(s), None, None
        return self._X

    def ridge(self, anchors: Array) -> Ridge:
        X = self._features(anchors)
        self._ridge = self._ridge or Ridge(X, self.settings.lam)
        return self._ridge

    def params(self) -> Payload:
        return {"W": self.W.copy()}

    def load(self, p: Payload) -> None:
        if p["W"].shape != self.W.shape:
            raise FedQHDError(f"weights of shape {p['W'].shape} do not fit an agent whose W is {self.W.shape}")
        self._set(p["W"])

    def _set(self, W: Array) -> None:
        if not np.isfinite(W).all():
            raise FedQHDError("the weights to install are not finite: a client's learning diverged")
        self.W[:] = W
        self.sync_target()

    def fingerprint(self) -> str:
        return self.encoder.fingerprint()

    def state(self) -> Payload:
        return {
            "W": self.W.copy(),
            "epsilon": np.array(self.epsilon),
            "episodes": np.array(self._episodes),
            "updates": np.array(self.updates),
            "rng": rng.pack(self._rng),
        }

    def restore(self, p: Payload) -> None:
        self.W[:] = p["W"]
        self.epsilon, self._episodes, self.updates = float(p["epsilon"]), int(p["episodes"]), int(p["updates"])
        self._rng = rng.unpack(p["rng"])
        self._seen[:] = np.nan


class OnlineQHD(QHD):
    """One TD step on the transition just met: no replay, no target network."""

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


class ReplayQHD(QHD):
    """Double-Q minibatches from a replay, bootstrapped from a delayed copy of W."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.W_target = self.W.copy(order="F")
        self._target_rows = real_view(self.W_target)
        self._phi_next = np.zeros_like(self._phi)
        self._steps = 0
        self.replay = Replay(self.settings.replay_size, self.encoder.n)
        c, rounded = self.settings, self.settings.features == "int8"
        # Hypervectors of the whole replay, or of one minibatch. Untouched pages of zeros cost nothing.
        rows = c.batch_size if c.features == "recompute" else c.replay_size
        self._kept: Array = np.zeros((rows, len(self._phi)), np.int8 if rounded else np.float32)
        self._scale = self._unit(rounded)
        self.sync_target()

    def observe(self, t: Transition) -> None:
        memory, B = self.replay, self.settings.batch_size
        self._store(memory.add(t), t.s)
        self._steps += 1
        if memory.size < B or self._steps % self.settings.update_every:
            return
        u = self._rng.random(B)
        if not self.encoder.fused:
            delta = self._plain_step(kernels.drawn(u, memory.size))
        elif self.settings.features == "recompute":
            delta = kernels.replay_step(
                *self._args, memory.s, memory.a, memory.r, memory.discount, memory.s_next,
                u, memory.size, self.eta, self._rows, self._target_rows, self._kept,
            )  # fmt: skip
        else:
            delta = kernels.stored_step(
                *self._args, self._kept, self._scale, memory.joined, memory.a, memory.r, memory.discount, memory.s_next,
                u, memory.size, self.eta, self._rows, self._target_rows, self._N_target, self._unit_target,
                self._phi_next,
            )  # fmt: skip
        self._learned(delta, t)

    def _plain_step(self, rows: Array) -> float:
        """The same step in numpy, for features that no kernel can make."""
        m, a = self.replay, self.replay.a[rows]
        W, W_target = self._rows.T, self._target_rows.T
        if self.settings.features == "recompute":
            X, X_next = self.encoder.features(m.s[rows]), self.encoder.features(m.s_next[rows])
        else:
            X, X_next = self._kept[rows], self._kept[(rows + 1) % len(self._kept)]
            ends = ~m.joined[rows] & (m.discount[rows] > 0)
            X_next[ends] = self.encoder.features(m.s_next[rows[ends]])
        y = double_q_target(m.r[rows], m.discount[rows], X_next @ W, X_next @ W_target)
        delta = td_error(y, X @ W, a)
        self._rows[:] = semi_gradient(W, X, a, delta, self.eta).T
        return float(np.abs(delta).sum())

    def _store(self, row: int, s: Array) -> None:
        """Keep Phi(s) with its transition."""
        if self.settings.features != "recompute":
            self._keep(s, self._kept, row, self._scale)

    def sync_target(self) -> None:
        self._set_target(self.W)

    def _set_target(self, W: Array) -> None:
        """The only way to change W_target: what the kernel multiplies by goes with it."""
        self.W_target[:] = W
        self._N_target, self._unit_target = kernels.counted(self._kept, self._target_rows)

    def state(self) -> Payload:
        memory = {f"replay.{k}": v for k, v in self.replay.state().items()}
        return {**super().state(), "W_target": self.W_target.copy(), "steps": np.array(self._steps), **memory}

    def restore(self, p: Payload) -> None:
        super().restore(p)
        self._set_target(p["W_target"])
        self._steps = int(p["steps"])
        self.replay.restore(under(p, "replay."))
        for row, s in enumerate(self.replay.s[: self.replay.size]):
            self._store(row, s)
