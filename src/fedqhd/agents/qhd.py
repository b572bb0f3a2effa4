"""QHD: Q-learning with a fixed hyperdimensional encoder and a linear readout W."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.encoded import LastEncoded
from fedqhd.agents.learner import Learner
from fedqhd.agents.model import Readout
from fedqhd.agents.settings import Compilation, StoredFeatures, feature_bytes
from fedqhd.agents.td import q_values
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Model, Payload, Transition
from fedqhd.encoders import BaseEncoder
from fedqhd.encoders.settings import encoder_bytes, encoder_of, real_features, small_encoders
from fedqhd.envs.public import Public
from fedqhd.linalg.geometry import normalised_step
from fedqhd.linalg.real_rows import real_view
from fedqhd.linalg.ridge import Ridge

FLEET, KEPT = 100, 2**32
"""If there are more clients than FLEET, and the features of their anchors and the factors of these would take more than
KEPT bytes in all, each client computes them again in every round."""


class QHD(Learner, ABC):
    """The base class of learners with Q(s, a) = Re(Phi(s)^H w_a). Subclasses implement `observe`.

    Args:
        encoder: The encoder.
        actions: Number of actions.
        settings: An instance of the learner's settings class.
        generator: The generator of its draws while it acts and learns.
    """

    encodes: ClassVar[bool] = True
    Fit = Compilation
    STATE: ClassVar[tuple[str, ...]] = ("W", "epsilon", "_episodes", "updates", "_rng")

    def __init__(self, encoder: BaseEncoder, actions: int, settings: Any, generator: np.random.Generator) -> None:
        self.encoder = encoder
        self.settings = settings
        self.epsilon = settings.epsilon_start
        self.updates = 0
        # In Fortran order, the weights of an action are contiguous, as the kernels need them.
        self.W: Array = np.zeros((encoder.D, actions), encoder.dtype, order="F")
        self._rng = generator
        self._episodes = 0
        self._rows = real_view(self.W)
        self._last = LastEncoded(encoder)
        self._q = np.zeros(actions, np.float32)
        self._forget_anchors()
        self.keeps_anchors = True
        """Whether features of anchors and their factors are kept from one round to the next."""

    def _forget_anchors(self) -> None:
        self._anchors: Array = np.empty((0, self.encoder.n), np.float32)
        self._X: Any = np.empty((0, 0))
        self._ridge: Ridge | None = None
        self._valued: tuple[Array, Array] | None = None

    @classmethod
    def make(cls, c: Config, client: int, public: Public, pooled: bool = False, **options: Any) -> Agent:
        def draw() -> tuple[BaseEncoder, Any]:
            encoder = encoder_of(c, client, public.fit_states, pooled, public.grid)
            return encoder, cls.settings_for(c, encoder, public.measure_states)

        # Clients with one encoder share it, which saves memory and time where there are thousands of them.
        one = c.setting == "homogeneous" and not pooled
        encoder, settings = public.once((cls, c), draw) if one else draw()
        agent = cls(encoder, public.actions, settings, rng.generator(c.seed, client, "agent"), **options)
        m, p = c.get("anchors", 0), real_features(c, encoder.D)
        agent.keeps_anchors = c.clients <= FLEET or 8 * c.clients * p * (m + min(m, p)) <= KEPT
        return agent

    @classmethod
    def stored_as(cls, c: Config) -> str:
        settings = c.part(cls.Settings)
        # Kernels make the features of our own encoders; those of a user's may be of any size.
        return settings.stored(fused=":" not in c.encoder[0]) if isinstance(settings, StoredFeatures) else "recompute"

    @classmethod
    def memory_bytes(cls, c: Config, n: int, D: int, actions: int) -> int:
        """Return the bytes of the states, of their features and of the encoder."""
        return super().memory_bytes(c, n, D, actions) + feature_bytes(c, cls.stored_as(c), D) + encoder_bytes(c, n, D)

    @classmethod
    def settings_for(cls, c: Config, encoder: BaseEncoder, states: Array) -> Any:
        """Return the learner's settings for an encoder, whose features may be measured on scaled states (k, n)."""
        return c.part(cls.Settings)

    @classmethod
    def warm_up(cls, c: Config) -> None:
        s = np.zeros(1, np.float32)
        for encoder in small_encoders(c):
            agent = cls(encoder, 2, cls.smallest(c), np.random.default_rng(0))
            agent.observe(Transition(s, agent.act(s), 0.0, 0.0, s))

    @classmethod
    def smallest(cls, c: Config) -> Any:
        """Return settings with which a single step runs every kernel."""
        return c.part(cls.Settings)

    def act(self, s: Array) -> int:
        last = self._last
        if not last.fused:
            last.encode_unfused(s)
        u_explore, u_action = self._rng.random(), self._rng.random()  # the same numbers as random(2) in half the time
        a = kernels.act(*last.args, s, last.state, last.phi, self._rows, self._q, self.epsilon, u_explore, u_action)
        return self._finite(a, s)

    def failed(self, acting: bool, z: Array, a: int, r: float, delta: float) -> None:
        if acting:
            self._finite(-1, z)

    def _encoded(self) -> Any:
        """Return the part that the records of all learners with an encoder have in common."""
        last = self._last
        return kernels.Encoded(*last.args, last.state, last.phi, self._rows, self._q, *rng.addresses(self._rng))

    def _finite(self, a: int, s: Array) -> int:
        """Return the action that the kernels chose; raise if they found that Q is not finite."""
        if a < 0:
            if not np.isfinite(s).all():
                raise FedQHDError(f"the environment returned the state {s.tolist()} (scaled), which is not finite")
            raise FedQHDError(f"Q(s, .) = {self._q.tolist()} is not finite: {self._cause()}")
        return int(a)

    def q(self, s: Array) -> Array:
        """Return the Q-values (B, A) of scaled states s (B, n) in float64.

        The features and values of the last states are cached, because these are often the anchors at which a teacher
        will be compiled.
        """
        X = self._features(s)
        if self._valued is None or not np.array_equal(self._valued[0], self.W):
            self._valued = self.W.copy(), q_values(X, self.W)
        values = self._valued[1].copy()
        self._tidy()
        return values

    def _tidy(self) -> None:
        """Forget the features of anchors and their factors, unless they are kept."""
        if not self.keeps_anchors:
            self._forget_anchors()

    def model(self) -> Model:
        return Readout(self.encoder, self.W.copy())

    def _cause(self) -> str:
        """Return the most likely reason why values diverged."""
        return "its learning diverged"

    @abstractmethod
    def observe(self, t: Transition) -> None: ...

    def end_episode(self) -> None:
        self._episodes += 1
        self.epsilon = self.settings.decayed(self.epsilon)

    def sync_target(self) -> None:
        """Do nothing; learners with target weights override this."""
        return

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Compile a teacher by one ridge solve, whose factorisation is reused in the next round.

        overwrite:   W <- argmin ||Re(X W) - Q||^2 + lam ||W||^2
        warm-start:  W <- argmin ||Re(X W) - Q||^2 + lam ||W - W_i||^2
        """
        ridge = self.ridge(anchors)
        if self.settings.compile == "overwrite":
            self._set(ridge.solve(Q))
        else:
            self._set(self.W + ridge.solve(Q - self.q(anchors)))
        self._tidy()

    def _features(self, s: Array) -> Any:
        if not np.array_equal(s, self._anchors):
            self._anchors, self._X, self._ridge, self._valued = s.copy(), self.encoder.matrix(s), None, None
        return self._X

    def ridge(self, anchors: Array) -> Ridge:
        """Return the factorised ridge problem at the anchors (m, n)."""
        X = self._features(anchors)
        self._ridge = self._ridge or Ridge(X, self.settings.lam)
        return self._ridge

    def params(self) -> Payload:
        return {"W": self.W.copy()}

    def load(self, p: Payload) -> None:
        if p["W"].shape != self.W.shape:
            raise FedQHDError(f"weights of shape {p['W'].shape} do not fit an agent whose W has shape {self.W.shape}")
        self._set(p["W"])

    def _set(self, W: Array) -> None:
        if not np.isfinite(W).all():
            raise FedQHDError("the weights to install are not finite: a client's learning diverged")
        self.W[:] = W
        self.sync_target()

    def fingerprint(self) -> str:
        return self.encoder.fingerprint()

    def restored(self) -> None:
        self._last.forget()


class SteppingQHD(QHD):
    """The base class of QHD learners that take steps of temporal-difference learning."""

    @classmethod
    def settings_for(cls, c: Config, encoder: BaseEncoder, states: Array) -> Any:
        settings: Any = c.part(cls.Settings)
        if settings.step == "plain":
            return settings
        return replace(settings, eta=normalised_step(settings.eta, cls.batch(settings), encoder.matrix(states)))

    @classmethod
    def batch(cls, settings: Any) -> int:
        """Return B, the number of transitions in a step."""
        return 1

    @classmethod
    def other_step(cls, c: Config) -> dict[str, Any]:
        return {"eta": c.eta / 2}

    @property
    def eta(self) -> float:
        """The step size of this episode."""
        return self.settings.eta * self.settings.eta_decay**self._episodes

    def _cause(self) -> str:
        return f"eta={self.settings.eta} is likely too large"

    def _learned(self, delta: float, t: Transition) -> None:
        self.updates += 1
        if not math.isfinite(delta):  # ten times as fast as numpy's for a single number
            self.failed(False, t.s, t.a, t.r, delta)

    def failed(self, acting: bool, z: Array, a: int, r: float, delta: float) -> None:
        super().failed(acting, z, a, r, delta)
        raise FedQHDError(f"the TD error became {delta} (reward {r}, action {a}): {self._cause()}")
