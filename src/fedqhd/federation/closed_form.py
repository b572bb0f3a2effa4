"""Federations of least-squares clients, which can also exchange their uncertainty or their normal equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from fedqhd.core.protocols import Agent, Array, Client, Expected, Payload, Reply
from fedqhd.federation.aggregate import RULES, weighted_mean
from fedqhd.federation.fedqhd import AnchorCompile
from fedqhd.linalg.grams import reliable_ridge
from fedqhd.linalg.normal import Factors
from fedqhd.linalg.real_rows import real_view


class Solver(Agent, Protocol):
    """An agent that knows its normal equations. `low` and `high` are the lowest and the highest return it has seen."""

    low: float
    high: float

    def uncertainty(self, states: Array) -> Array:
        """Return the share of the prior variance that remains at each state and action, (B, A), in (0, 1]."""
        ...

    def statistics(self) -> tuple[Array, Array]:
        """Return X_a^T X_a, (A, p, p), and X_a^T (y - X_a W_a), (p, A), for all actions a."""
        ...


@dataclass(frozen=True, eq=False)
class PrecisionCompile(AnchorCompile):
    """Algorithm 2 with a precision-weighted mean at each anchor and action:

    Q_bar = (sum_i pi_i Q_i / v_i) / (sum_i pi_i / v_i),

    where v_i is the share of the prior variance that remains after client i has seen its data.
    """

    @property
    def is_mean(self) -> bool:
        return False

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        precision = 1.0 / cast(Solver, client.agent).uncertainty(self.anchors)
        return {"Q": client.agent.q(self.anchors), "precision": precision}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        shape = (len(self.anchors), self.actions)
        # A precision is at least 1 up to rounding. Nobody can check it, so it does not vote.
        return {"Q": Expected(shape, "f"), "precision": Expected(shape, "f", least=0.5, votes=False)}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        weighted = [r._replace(payload={"Q": r.payload["Q"] * r.payload["precision"]}) for r in replies]
        return state, {"Q": weighted_mean(weighted, "Q") / weighted_mean(replies, "precision")}


@dataclass(frozen=True, eq=False)
class NormalExchange:
    """Clients with one encoder send X_a^T X_a and X_a^T (y - X_a W_a) along with W, and the server computes the sweep

    W_a <- W_a + rho (sum_i X_a^T X_a + lam I)^-1 sum_i X_a^T (y - X_a W_a),

    which is the sweep of a single client that has everyone's data. There is one sweep per exchange, because the targets
    y depend on the new W.
    """

    lam: float
    rho: float
    like: Payload | None = None
    """Arrays with the shapes and types of the clients' parameters; None if these are not known."""

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        agent = cast(Solver, client.agent)
        G, b = agent.statistics()
        return {"G": G, "b": b, "range": np.array([agent.low, agent.high]), **agent.params()}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        if self.like is None:
            return None
        W = self.like["W"]
        p, A = real_view(np.asfortranarray(W)).shape[::-1]
        # Sums grow with the data of a client, so their differences do not show who lies.
        return {
            "G": Expected((A, p, p), "f", votes=False, gram=True),
            "b": Expected((p, A), "f", votes=False),
            "range": Expected((2,), "f", votes=False),
            "W": Expected(W.shape, W.dtype.kind, votes=False),
        }

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        grams = [r.payload["G"] for r in replies]
        G = np.stack(grams).sum(axis=0, dtype=np.float64)
        b = np.sum([r.payload["b"] for r in replies], axis=0)
        # A client may claim sums so large that lam vanishes beside them; they must not end the run of the others.
        change = self.rho * Factors(G, reliable_ridge(self.lam, grams, G)).solve(b)
        # All clients have the same W from the last round; the median is that W, even if a few clients lie about it.
        W = np.array(RULES["median"].combine(replies, "W"), order="F")
        W = W.astype(np.result_type(W, np.float64))
        real_view(W)[:] += change.T
        ranges = np.stack([r.payload["range"] for r in replies])
        return state, {"W": W, "range": np.array([ranges[:, 0].min(), ranges[:, 1].max()])}

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        return {name: v for name, v in (self.expects(teacher) or {}).items() if name in ("W", "range")}

    def install(self, client: Client, teacher: Payload) -> None:
        agent = cast(Solver, client.agent)
        agent.load({"W": teacher["W"]})
        agent.low, agent.high = (float(x) for x in teacher["range"])
