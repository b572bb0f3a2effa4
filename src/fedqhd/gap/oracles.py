"""Oracle projections of a reference Q* onto the clients' spans, and the gap of each client to its own oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedqhd.agents.policy import Policy
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap import bound as theory
from fedqhd.gap.compiled import Member
from fedqhd.linalg.geometry import Spectrum, misalignment, principal_angles, span, states_needed
from fedqhd.runs.exchange import Exchange

ANGLE_STATES = 8000
"""The largest number of states for angles between two spans. Pairs that need more are skipped: an SVD takes minutes."""


@dataclass(frozen=True)
class Measurement:
    """The states and episodes on which all clients are measured.

    `fit` are the scaled states (n, variables) on which functions are projected; `held_out` has others by source.
    `episodes` is the number of greedy episodes for each return, whose seeds derive from `seed`.
    """

    config: Config
    scaler: StateScaler
    fit: Array
    held_out: dict[str, Array]
    episodes: int
    seed: int

    def greedy(self, member: Member, W: Array) -> float:
        """Return the mean greedy return of a client with weights W (p, A)."""
        return member.greedy(W, self.scaler, self.config, self.episodes, self.seed)


def rms(x: Array) -> float:
    """Return the root mean square of all entries."""
    return float(np.sqrt(np.mean(np.square(x))))


Bases = dict[int, Array]
"""Orthonormal bases (n, p) of the clients' spans, by the index of the client."""


def make_bases(clients: Sequence[Member], states: Array) -> Bases:
    """Return the bases of all spans that are small enough for an angle with at least one other span."""
    small = [m for m in clients if any(states_needed(m.p, o.p) <= ANGLE_STATES for o in clients if o is not m)]
    return {m.index: span(m.features(states)) for m in small}


def _sine(a: Member, b: Member, bases: Bases) -> float:
    """Return the larger of ||(I - Pi_a) Pi_b|| and ||(I - Pi_b) Pi_a||.

    It is 1 if the dimensions differ. If the angle would need too many states, 1 is returned as an upper bound.
    """
    if a is b:
        return 0.0
    if a.p != b.p or states_needed(a.p, b.p) > ANGLE_STATES:
        return 1.0
    return max(misalignment(bases[a.index], bases[b.index]), misalignment(bases[b.index], bases[a.index]))


def angles(clients: Sequence[Member], bases: Bases) -> list[dict[str, Any]]:
    """Measure the angles between the spans of each pair of clients.

    Returns:
        For each pair the number of states needed and, if that is at most ANGLE_STATES, the smallest, median and largest
        principal angle in degrees, and ||(I - Pi_i) Pi_j|| both ways.
    """
    rows = []
    for i, a in enumerate(clients):
        for b in clients[i + 1 :]:
            row: dict[str, Any] = {"pair": [a.index, b.index], "states_needed": states_needed(a.p, b.p)}
            if row["states_needed"] <= ANGLE_STATES:
                U, V = bases[a.index], bases[b.index]
                degrees = np.degrees(principal_angles(U, V))
                row |= {
                    "smallest": float(degrees[0]), "median": float(np.median(degrees)), "largest": float(degrees[-1]),
                    "misalignment": [misalignment(U, V), misalignment(V, U)],
                }  # fmt: skip
            rows.append(row)
    return rows


class Oracles:
    """The projections of Q* onto the clients' spans, and the teacher that they would form together.

    Args:
        clients: The QHD clients of the exchange.
        ex: The exchange, for its anchors and the clients' weights in the teacher.
        measurement: The states and episodes to measure on.
        reference: The policy whose Q is Q*.
        bases: Bases of the clients' spans (see `make_bases`).
    """

    def __init__(
        self, clients: Sequence[Member], ex: Exchange, measurement: Measurement, reference: Policy, bases: Bases
    ) -> None:
        self.clients, self.measurement = clients, measurement

        def q_star(Z: Array) -> Array:
            # The reference may scale states differently.
            return reference.q(measurement.scaler.raw(Z)).astype(np.float64)

        truth = q_star(measurement.fit)
        self.weights = [m.project(measurement.fit, q_star) for m in clients]
        self.B = float(np.linalg.norm(truth, axis=0).max())
        rest = [truth - m.q(measurement.fit, W) for m, W in zip(clients, self.weights, strict=True)]
        self.epsilon = np.array([np.linalg.norm(e, axis=0).max() for e in rest])
        pi = np.array([ex.pi[m.index] for m in clients])
        self.pi = pi / pi.sum()
        self.teacher = sum(
            p * m.features(ex.anchors) @ W for p, m, W in zip(self.pi, clients, self.weights, strict=True)
        )
        self.anchors = ex.anchors
        self.sines = np.array([[_sine(a, b, bases) for b in clients] for a in clients])
        self.q_star = q_star

    def measure_client(self, member: Member, anchors: Spectrum) -> dict[str, Any]:
        """Return the bound and the gaps of one client against its oracle, as they stand in the report.

        Args:
            member: One of the clients.
            anchors: The SVD of its features at the anchors.
        """
        measurement, k = self.measurement, self.clients.index(member)
        W_hat, X, lam = self.weights[k], member.features(self.anchors), measurement.config.lam
        parts = theory.split(anchors, self.teacher, X, W_hat, lam)
        warm = theory.split(anchors, self.teacher, X, W_hat, lam, W_hat)
        h = theory.h_bar(k, self.B, self.sines, self.epsilon, self.pi)
        bound = theory.gap_bound(anchors, h, W_hat, parts, lam)
        held = np.vstack(list(measurement.held_out.values()))
        Phi, truth = member.features(held), self.q_star(held)
        oracle = Phi @ W_hat
        after = theory.measure(oracle, Phi @ member.after)
        greedy_oracle, greedy_after = measurement.greedy(member, W_hat), measurement.greedy(member, member.after)
        return {
            "bound": {**bound._asdict(), "total": bound.total, "B": self.B, "epsilon": float(self.epsilon[k])},
            "static_gap": theory.measure(Phi @ parts.total, np.zeros_like(oracle))._asdict(),
            "static_gap_warm_start": theory.measure(Phi @ warm.total, np.zeros_like(oracle))._asdict(),
            "gap": after._asdict(),
            "gap_before": theory.measure(oracle, Phi @ member.before)._asdict(),
            "compilation_error": after.max,
            "representation_rms": rms(oracle - truth),
            "greedy_oracle": greedy_oracle,
            "policy_value_gap": greedy_oracle - greedy_after,
        }
