"""Least squares: the client solves for W instead of stepping towards it.

Fitted Q-iteration over all that it remembers. A sweep makes targets with the present W and moves W towards their fit,

    y   = clip(r + discount * ((1 - trace) max_a Q(s', a) + trace y'))
    W_a <- W_a + rho (fit_a(y) - W_a),   fit_a(y) = argmin ||X_a w - y||^2 + lam ||w - V_a||^2

with y' the target of the transition that followed, and V what W was at the last round. Where a client has no data, or
hardly took an action, it keeps what the federation knows; the more often a direction was met, the less V matters. The
range of y is what returns have shown to be possible.
rho halves when a sweep makes the Bellman error grow and recovers while it falls, and a fit that doubles it is undone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.memory import Trajectories
from fedqhd.agents.qhd import QHD
from fedqhd.agents.settings import Compilation, Exploration, Memory, StoredFeatures, storage
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Transition
from fedqhd.core.settings import setting
from fedqhd.encoders.settings import real_features
from fedqhd.linalg.normal import ConjugateGradients, Factors, NormalEquations, leave_one_out, whole

log = logging.getLogger(__name__)

FEWEST = 50
"""New transitions that the first fits wait for; later ones wait for a share of the memory."""
LEAST_RHO = 0.05
ALARM = 2.0
"""A fit that multiplies the Bellman error by more than this is undone."""
DENSE = 4096
"""Features up to which D x D matrices are kept; beyond, conjugate gradients on the stored rows."""
CG_STEPS = 10
SWEEP = 128
"""Rows that a sweep takes at a time."""
SKETCH = 64
"""Inner products that stand for phi^T (X_a^T X_a + lam I)^-1 phi while acting: its root is right to about 9 %."""
LAMBDAS = 10.0 ** np.arange(-2, 2.5, 0.5)
"""Among which leave-one-out chooses, by its error on at most LOO_ROWS rows."""
LOO_ROWS = 1000


@dataclass(frozen=True)
class LeastSquaresSettings(StoredFeatures, Memory, Compilation, Exploration):
    """The settings of `learner=least-squares`."""

    title: ClassVar[str] = "least squares"

    fit_lam: float = setting(0.3, "ridge of a fit", at_least=0)
    ridge: str = setting("given", "fit_lam as given, or by leave-one-out error", choices=("given", "leave-one-out"))
    sweeps: int = setting(10, "sweeps a fit")
    trace: float = setting(
        0.8, "share of the return that followed in a target; the rest is max Q(s', a)", at_least=0, at_most=1
    )
    double_q: str = setting("off", "max Q(s', a) at most what the last round's W says", choices=("off", "clipped"))
    damping: float = setting(0.3, "first step towards a fit, rho", above=0, at_most=1)
    refit: float = setting(0.1, "share of new transitions in the memory that calls for a fit", above=0, at_most=1)
    clip: str = setting("returns", "keep targets in the range of returns met", choices=("returns", "off"))
    explore: str = setting("epsilon", "explore by chance, or by an optimism bonus", choices=("epsilon", "bonus"))
    bonus: float = setting(
        0.1, "explore=bonus: optimism, in units of the range of returns", at_least=0, only={"explore": "bonus"}
    )
    exchange: str = setting(
        "model", "send W or Q on anchors, or normal equations (one encoder)", choices=("model", "statistics")
    )

    def stored(self, fused: bool) -> str:
        """A fit goes through all hypervectors many times, so they are always kept; in double precision, sums over
        clients equal the sum over all."""
        if self.exchange == "statistics":
            return "float64"
        return "float32" if self.features == "recompute" else super().stored(fused)


class LeastSquaresQHD(QHD):
    """Fits W to the targets of everything remembered, a few damped sweeps at a time."""

    name: ClassVar[str] = "least-squares"
    Settings = LeastSquaresSettings
    settings: LeastSquaresSettings
    STATE = ("V", "lam", "rho", "low", "high", "alarms", "_lam_rows", "_new", "_rewards", "memory")
    OPTIONAL = ("_awaited", "_sketch")

    @classmethod
    def memory_bytes(cls, c: Config, D: int, actions: int) -> int:
        """Features, and normal equations with a copy that is factorised."""
        p, precision = real_features(c, D), 8 if cls.stored_as(c) == "float64" else 4
        return super().memory_bytes(c, D, actions) + (2 * actions * p * p * precision if p <= DENSE else 0)

    @classmethod
    def needs_matrices(cls, c: Config) -> dict[str, str]:
        certain = {"weights": "precision", "explore": "bonus", "exchange": "statistics"}
        return {name: value for name, value in certain.items() if c.get(name) == value}

    @classmethod
    def other_step(cls, c: Config) -> dict[str, Any]:
        return {"trace": c.trace / 2}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        c, p, actions = self.settings, len(self._last.phi), self.W.shape[1]
        if c.explore == "bonus":
            self.epsilon = 0.0
        # A sweep is bound by reading X, which int8 makes four times shorter.
        self.memory = Trajectories(c.replay_size, self.encoder.n, self._last, storage(c, self.encoder))
        self._scale, self._work = self.memory.scale, np.result_type(self.memory.X, np.float32)
        self.normal = NormalEquations(actions, p if p <= DENSE else 0, float(self._scale), self._work)
        self.V = np.zeros((p, actions))
        self.lam, self.rho, self.alarms = c.fit_lam, c.damping, 0
        self.low, self.high = np.inf, -np.inf
        self._lam_rows = self._new = 0
        self._awaited: Array | None = None
        self._rewards: list[tuple[float, float]] = []
        self._sketch: Array | None = None

    def act(self, s: Array) -> int:
        """explore=bonus: greedy for Q + bonus sqrt(uncertainty), in units of the range of returns; no epsilon."""
        if self.settings.explore == "epsilon":
            return super().act(s)
        u_action = self._rng.random(2)[1]
        self._last.encode(s)
        phi = self._last.phi
        np.dot(self._rows, phi, out=self._q)
        if self._sketch is not None:
            share = np.linalg.norm(self._sketch @ phi, axis=1) / np.linalg.norm(phi)
            self._q += self.settings.bonus * (self.high - self.low) * share
        return self._finite(kernels.greedy(self._q, u_action), s)

    def observe(self, t: Transition) -> None:
        if t.s is not self._awaited and (self._awaited is None or not np.array_equal(t.s, self._awaited)):
            self._close()
        self._remember(t.s, t.a, t.r, t.discount)
        self._rewards.append((t.r, t.discount))
        self._awaited = t.s_next if t.discount else None
        self._new += 1

    def _remember(self, s: Array, a: int, r: float, discount: float) -> None:
        if self.memory.add(s, a, r, discount, first=not self._rewards):
            self.normal.reset()

    def _close(self) -> None:
        """The end of an episode: keep the range of returns it showed and, if it was cut off, its last state, from
        where its return is continued by the present estimate."""
        ret = 0.0
        if self._awaited is not None:
            self._remember(self._awaited, -1, 0.0, 0.0)
            ret = float((self._rows @ self._last.phi).max())
        for r, discount in reversed(self._rewards):
            ret = r + discount * ret
            self.low, self.high = min(self.low, ret), max(self.high, ret)
        self._rewards.clear()
        self._awaited = None

    def end_episode(self) -> None:
        self._close()
        self._episodes += 1
        if self.settings.explore == "epsilon":
            self.epsilon = self.settings.decayed(self.epsilon)
        due = self._new >= max(FEWEST, self.settings.refit * self.memory.size)
        if due and self.settings.exchange == "model":
            self.fit(self.settings.sweeps)

    def rows(self) -> tuple[Array, Array]:
        """(X, a) of all that is remembered, X in units of the scale it is kept by."""
        return self.memory.X[: self.memory.size], self.memory.a[: self.memory.size]

    def values(self, W: Array) -> Array:
        """Q of all that is remembered."""
        X, _ = self.rows()
        Q = np.empty((len(X), W.shape[1]), self._work)
        kernels.values(X, self._weights(W), Q)
        return Q

    def _weights(self, W: Array) -> Array:
        """For X as it is kept; in C order, in which the kernels are fast."""
        return np.ascontiguousarray(self._scale * W.T, self._work)

    def targets(self, W: Array, Q_V: Array) -> tuple[Array, Array, float]:
        """(y, b, e): what W makes of the memory as targets, b_a = X_a^T (y - Q_V), and W's Bellman error, root mean
        square."""
        c, m, (X, a), weights = self.settings, self.memory, self.rows(), self._weights(W)
        low, high = (self.low, self.high) if c.clip == "returns" else (-np.inf, np.inf)
        y, b = np.empty(m.size, self._work), np.zeros(weights.shape)
        squares = kernels.sweep(
            X, weights, m.r[: m.size], m.discount[: m.size], a, Q_V, c.trace, c.double_q == "clipped", low, high, SWEEP,
            y, b,
        )  # fmt: skip
        return y, self._scale * b.T, float(np.sqrt(squares / max(int(np.count_nonzero(a >= 0)), 1)))

    def _gram_times(self, P: Array) -> Array:
        """X_a^T X_a P_a for each action."""
        X, a = self.rows()
        chosen = np.take_along_axis(self.values(P), np.maximum(a, 0)[:, None], 1)[:, 0]
        b = np.zeros(P.T.shape, self._work)
        kernels.add_products(X, a, chosen, b)
        return self._scale * b.T.astype(np.float64)

    def fit(self, sweeps: int) -> None:
        """Sweeps of W_a <- W_a + rho (fit_a(y) - W_a), or none of them if they lead away."""
        self._new = 0
        W, V = self._rows.T.astype(np.float64), self.V
        Q_V = self.values(V)
        y, b, first = self.targets(W, Q_V)
        solve = self._solver(y, b)
        error = first
        for _ in range(sweeps):
            W += self.rho * (V + solve(b) - W)
            before = error
            _, b, error = self.targets(W, Q_V)
            self.rho = min(1.0, 1.2 * self.rho) if error <= before else max(LEAST_RHO, 0.5 * self.rho)
            self.updates += 1
        if error <= ALARM * first or first == 0:
            self._rows[:] = W.T
            return
        self.alarms += 1
        self.rho = LEAST_RHO
        log.warning(
            "a fit would have raised the Bellman error from %.3g to %.3g and was undone (fit_lam=%g, rho now %g)",
            first, error, self.lam, self.rho,
        )  # fmt: skip

    def _solver(self, y: Array, b: Array) -> Callable[[Array], Array]:
        X, _ = self.rows()
        if X.shape[1] > DENSE:
            return ConjugateGradients(self._gram_times, b.shape, self.lam, CG_STEPS).solve
        G = self._grams()
        if self.settings.ridge == "leave-one-out" and len(X) >= 2 * self._lam_rows:
            self._choose_lam(G, y, b)
        factors = self._factors(G)
        if self.settings.explore == "bonus":
            S = np.sqrt(self.lam / SKETCH) * self._rng.choice((-1.0, 1.0), (SKETCH, X.shape[1]))
            self._sketch = factors.sketch(S).astype(np.float32)
        return factors.solve

    def _choose_lam(self, G: Array, y: Array, b: Array) -> None:
        """By the action taken most often, anew whenever the memory has doubled."""
        X, a = self.rows()
        k = int(np.bincount(a[a >= 0]).argmax())
        rows = np.flatnonzero(a == k)
        some = rows[:: -(-len(rows) // LOO_ROWS)]
        Z = self._scale * X[some].astype(np.float64)
        errors = leave_one_out(G[k].astype(np.float64), b[:, k], Z, y[some] - Z @ self.V[:, k], LAMBDAS)
        self.lam, self._lam_rows = float(LAMBDAS[errors.argmin()]), len(X)

    def _grams(self) -> Array:
        """X_a^T X_a of each action, as precise as the features are: factors in single precision are made twice as fast,
        and good enough for a damped step and for a certainty."""
        return self.normal.absorb(*self.rows())

    def _factors(self, G: Array) -> Factors:
        """In double precision where G is singular in single."""
        with contextlib.suppress(np.linalg.LinAlgError):
            return Factors(G, self.lam)
        with contextlib.suppress(np.linalg.LinAlgError):
            exact = NormalEquations(len(G), G.shape[1], self.normal.scale)
            return Factors(exact.absorb(*self.rows()), self.lam)
        raise FedQHDError(
            f"fit_lam={self.lam:g} is too small: the {self.memory.size} transitions do not span D={self.encoder.D} "
            "features for each action; 0.01 or more is safe"
        )

    def uncertainty(self, states: Array) -> Array:
        """How little is known of each state and action, in (0, 1]; see `Factors.uncertainty`."""
        # Phi as the memory has it, real and imaginary parts in turn; the encoder gives Phi^H.
        phi = self.encoder(states).conj().view(np.float64)
        return self._factors(self._grams()).uncertainty(phi)

    def statistics(self) -> tuple[Array, Array]:
        """(G, b): X_a^T X_a and X_a^T (y - X_a W_a) of each action, all that a sweep needs of this client's data."""
        W = self._rows.T.astype(np.float64)
        return whole(self._grams()), self.targets(W, self.values(W))[1]

    def sync_target(self) -> None:
        self.V[:] = self._rows.T

    def restored(self) -> None:
        super().restored()
        self.normal.reset()
