"""Least squares: a client solves for W instead of taking gradient steps.

This is fitted Q-iteration on all stored transitions. A sweep computes targets with the present W and moves W towards
their fit,

    y   = clip(r + discount * ((1 - trace) max_a Q(s', a) + trace y'))
    W_a <- W_a + rho (fit_a(y) - W_a),   fit_a(y) = argmin ||X_a w - y||^2 + lam ||w - V_a||^2

where y' is the target of the next transition and V is W at the end of the last round. Where a client has little data,
or rarely took an action, it keeps what it got from the federation; the more data there is in a direction, the less V
matters. Targets are clipped to the range of returns observed so far. rho is halved when a sweep increases the Bellman
error and recovers while the error falls, and a fit that doubles the error is undone. With
`sweep_tol`, a fit ends when the Bellman error hardly changes any more.
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
from fedqhd.linalg.normal import ConjugateGradients, Factors, NormalEquations, leave_one_out, symmetrised

log = logging.getLogger(__name__)

FEWEST = 50
"""The least number of new transitions for a fit. Later fits wait for a share of the memory."""
LEAST_RHO = 0.05
ALARM = 2.0
"""A fit that multiplies the Bellman error by more than this is undone."""
DENSE = 4096
"""The largest number of real features for which D x D matrices are used; beyond it, conjugate gradients are."""
CG_STEPS = 10
SWEEP = 128
"""Rows that a sweep processes at a time."""
SKETCH = 64
"""Inner products that approximate phi^T (X_a^T X_a + lam I)^-1 phi while acting; its root has an error of about 9 %."""
LAMBDAS = 10.0 ** np.arange(-2, 2.5, 0.5)
"""The values among which leave-one-out chooses, by the error on at most LOO_ROWS rows."""
LOO_ROWS = 1000


@dataclass(frozen=True)
class LeastSquaresSettings(StoredFeatures, Memory, Compilation, Exploration):
    """The settings of `learner=least-squares`."""

    title: ClassVar[str] = "least squares"

    fit_lam: float = setting(0.3, "ridge penalty of a fit", at_least=0)
    ridge: str = setting(
        "given", "fit_lam as given, or chosen by leave-one-out error", choices=("given", "leave-one-out")
    )
    sweeps: int = setting(10, "the largest number of sweeps in a fit")
    sweep_tol: float = setting(
        0.0, "end a fit when a sweep changes the Bellman error by less than this share of it", at_least=0, below=1,
        only={"exchange": "model"},
    )  # fmt: skip
    trace: float = setting(
        0.8, "share of the following return in a target; the rest is max Q(s', a)", at_least=0, at_most=1
    )
    double_q: str = setting("off", "limit max Q(s', a) to the value by W of the last round", choices=("off", "clipped"))
    damping: float = setting(0.3, "initial damping of a step towards a fit, rho", above=0, at_most=1)
    refit: float = setting(0.1, "share of new transitions in the memory that triggers a fit", above=0, at_most=1)
    clip: str = setting("returns", "clip targets to the range of observed returns", choices=("returns", "off"))
    explore: str = setting("epsilon", "explore at random, or by a bonus for uncertainty", choices=("epsilon", "bonus"))
    bonus: float = setting(
        0.1, "explore=bonus: size of the bonus, in units of the range of returns", at_least=0, only={"explore": "bonus"}
    )
    exchange: str = setting(
        "model", "send W or Q at anchors, or normal equations (homogeneous)", choices=("model", "statistics")
    )

    def stored(self, fused: bool) -> str:
        """Return the type in which hypervectors are stored; a fit reads them too often to recompute them."""
        if self.exchange == "statistics":
            return "float64"  # so that the sum of the clients' statistics equals the statistics of all data
        return "float32" if self.features == "recompute" else super().stored(fused)


class LeastSquaresQHD(QHD):
    """Fits W to the targets of all stored transitions, by a few damped sweeps at a time."""

    name: ClassVar[str] = "least-squares"
    Settings = LeastSquaresSettings
    states_stored: ClassVar[int] = 1
    settings: LeastSquaresSettings
    STATE = ("V", "lam", "rho", "low", "high", "alarms", "_lam_rows", "_new", "_rewards", "memory")
    OPTIONAL = ("_awaited", "_sketch")

    @classmethod
    def memory_bytes(cls, c: Config, n: int, D: int, actions: int) -> int:
        """Return the bytes of what any agent has, the normal equations and a copy of these that is factorised."""
        p, precision = real_features(c, D), 8 if cls.stored_as(c) == "float64" else 4
        return super().memory_bytes(c, n, D, actions) + (2 * actions * p * p * precision if p <= DENSE else 0)

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
        # The time of a sweep is that of reading X, which is four times smaller in int8.
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
        """Choose an action: epsilon-greedy or, with explore=bonus, greedy for Q + bonus range sqrt(uncertainty)."""
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

    def in_kernel(self) -> Any:
        if not self.encoder.fused or self.settings.explore != "epsilon":
            return None
        m = self.memory
        if m.make_room():
            self.normal.reset()
        columns = m.s, m.a, m.r, m.discount, m.first, m.X, m.scale
        counts = np.array([m.size, len(self._rewards) > 0, 0, 0])
        return kernels.Fitted(self._encoded(), *columns, counts, np.empty((kernels.MANY, 2)))

    def played(self, record: Any, actions: int, z: Array) -> None:
        self.memory.size = int(record.counts[0])
        self._rewards += map(tuple, record.rewards[:actions].tolist())
        self._awaited = z.copy() if self._rewards[-1][1] else None
        self._new += actions

    def goes_on(self, z: Array) -> None:
        if z is not self._awaited and (self._awaited is None or not np.array_equal(z, self._awaited)):
            self._close()

    def observe(self, t: Transition) -> None:
        self.goes_on(t.s)
        self._remember(t.s, t.a, t.r, t.discount)
        self._rewards.append((t.r, t.discount))
        self._awaited = t.s_next if t.discount else None
        self._new += 1

    def _remember(self, s: Array, a: int, r: float, discount: float) -> None:
        if self.memory.add(s, a, r, discount, first=not self._rewards):
            self.normal.reset()

    def _close(self) -> None:
        """End an episode: update the range of returns and, if the episode was truncated, store its last state."""
        ret = 0.0
        if self._awaited is not None:  # the return is continued by the estimated value of the last state
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
        """Return (X, a) of all stored rows; X is not multiplied by the scale of the memory."""
        return self.memory.X[: self.memory.size], self.memory.a[: self.memory.size]

    def values(self, W: Array) -> Array:
        """Return the values (rows, A) that weights W (p, A) give to all stored states."""
        X, _ = self.rows()
        Q = np.empty((len(X), W.shape[1]), self._work)
        kernels.values(X, self._weights(W), Q)
        return Q

    def _weights(self, W: Array) -> Array:
        """Return the weights (A, p) for X as it is stored, in C order, for which the kernels are fast."""
        return np.ascontiguousarray(self._scale * W.T, self._work)

    def targets(self, W: Array, Q_V: Array) -> tuple[Array, Array, float]:
        """Return (y, b, e): the targets by W, b_a = X_a^T (y - Q_V) as b (p, A), and the RMS Bellman error of W.

        Q_V are the values of all stored rows by V.
        """
        c, m, (X, a), weights = self.settings, self.memory, self.rows(), self._weights(W)
        low, high = (self.low, self.high) if c.clip == "returns" else (-np.inf, np.inf)
        y, b = np.empty(m.size, self._work), np.zeros(weights.shape)
        squares = kernels.sweep(
            X, weights, m.r[: m.size], m.discount[: m.size], a, Q_V, c.trace, c.double_q == "clipped", low, high, SWEEP,
            y, b,
        )  # fmt: skip
        return y, self._scale * b.T, float(np.sqrt(squares / max(int(np.count_nonzero(a >= 0)), 1)))

    def _gram_times(self, P: Array) -> Array:
        """Return X_a^T X_a P_a for each action, (p, A)."""
        X, a = self.rows()
        chosen = np.take_along_axis(self.values(P), np.maximum(a, 0)[:, None], 1)[:, 0]
        b = np.zeros(P.T.shape, self._work)
        kernels.add_products(X, a, chosen, b)
        return self._scale * b.T.astype(np.float64)

    def fit(self, sweeps: int) -> None:
        """Make sweeps of W_a <- W_a + rho (fit_a(y) - W_a) until one hardly changes the Bellman error; keep W if they
        would diverge."""
        self._new = 0
        W, V = self._rows.T.astype(np.float64), self.V
        Q_V = self.values(V)
        y, b, first = self.targets(W, Q_V)
        solve = self._solver(y, b)
        error, tol = first, self.settings.sweep_tol
        for _ in range(sweeps):
            W += self.rho * (V + solve(b) - W)
            before = error
            _, b, error = self.targets(W, Q_V)
            self.rho = min(1.0, 1.2 * self.rho) if error <= before else max(LEAST_RHO, 0.5 * self.rho)
            self.updates += 1
            if abs(error - before) < tol * before:
                break
        if error <= ALARM * first or first == 0:
            self._rows[:] = W.T
            return
        self.alarms += 1
        self.rho = LEAST_RHO
        log.log(
            logging.WARNING if self.alarms == 1 else logging.INFO,
            "a fit would have raised the Bellman error from %.3g to %.3g and was undone; the next ones take "
            "smaller steps (fit_lam=%g, rho=%g; this is said once, and summary.json counts it as fit_alarms)",
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
        """Choose lam by the leave-one-out error of the most frequent action."""
        X, a = self.rows()
        k = int(np.bincount(a[a >= 0]).argmax())
        rows = np.flatnonzero(a == k)
        some = rows[:: -(-len(rows) // LOO_ROWS)]
        Z = self._scale * X[some].astype(np.float64)
        errors = leave_one_out(G[k].astype(np.float64), b[:, k], Z, y[some] - Z @ self.V[:, k], LAMBDAS)
        self.lam, self._lam_rows = float(LAMBDAS[errors.argmin()]), len(X)

    def _grams(self) -> Array:
        """Return X_a^T X_a of each action in the precision of the features: single precision takes half the time to
        factorise and suffices for a damped step and for uncertainties."""
        return self.normal.absorb(*self.rows())

    def _factors(self, G: Array) -> Factors:
        """Factorise G, in double precision if it is singular in single precision."""
        with contextlib.suppress(np.linalg.LinAlgError):
            return Factors(G, self.lam)
        with contextlib.suppress(np.linalg.LinAlgError):
            exact = NormalEquations(len(G), G.shape[1], self.normal.scale)
            return Factors(exact.absorb(*self.rows()), self.lam)
        raise FedQHDError(
            f"fit_lam={self.lam:g} is too small: the {self.memory.size} transitions do not span D={self.encoder.D} "
            "features for each action; use 0.01 or more"
        )

    def uncertainty(self, states: Array) -> Array:
        """Return the uncertainty (B, A) in (0, 1] of each state and action; see `Factors.uncertainty`."""
        # The memory stores Phi as interleaved real and imaginary parts, and the encoder returns Phi^H.
        phi = self.encoder(states).conj().view(np.float64)
        return self._factors(self._grams()).uncertainty(phi)

    def statistics(self) -> tuple[Array, Array]:
        """Return all that a sweep needs of the data: X_a^T X_a (A, p, p) and X_a^T (y - X_a W_a), (p, A)."""
        W = self._rows.T.astype(np.float64)
        return symmetrised(self._grams()), self.targets(W, self.values(W))[1]

    def sync_target(self) -> None:
        self.V[:] = self._rows.T

    def restored(self) -> None:
        super().restored()
        self.memory.check_actions(self.W.shape[1])
        self.normal.reset()
