"""What the last federation of a finished run cost each client, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd import rng
from fedqhd.encoders import BaseEncoder
from fedqhd.envs import StateScaler, make_env
from fedqhd.experiment import exchange
from fedqhd.experiment.config import Config, known_keys, read_toml
from fedqhd.experiment.limits import check_gap
from fedqhd.experiment.states import SOURCES, sample
from fedqhd.interfaces import Array, FedQHDError
from fedqhd.models import Readout
from fedqhd.policy import Policy, greedy_returns, load_policy
from fedqhd.theory import gap as theory
from fedqhd.theory.geometry import Spectrum, misalignment, principal_angles, span, stacked_weights, states_needed
from fedqhd.theory.ridge import stacked

HELD_OUT = 1000
"""States of each source on which differences are measured; none of them is an anchor."""
FEWEST = 8000
"""States on which functions are projected, at the least."""
ANGLE_STATES = 8000
"""Pairs of encoders whose angles need more states than this are left out: their SVD would take minutes."""
BLOCK = 2048
FAR = 3.0
"""An error this many times that on random rollouts is one of where the anchors are."""
Values = Callable[[Array], Array]


@dataclass(frozen=True)
class Member:
    """One client of the exchange: its features, its weights before and after, and the anchors it compiled at."""

    index: int
    encoder: BaseEncoder
    before: Array
    after: Array
    anchors: Array

    def features(self, Z: Array) -> Array:
        return np.asarray(stacked(self.encoder(Z)), np.float64)

    @property
    def p(self) -> int:
        return self.encoder.D * (2 if np.dtype(self.encoder.dtype).kind == "c" else 1)

    def project(self, states: Array, values: Values) -> Array:
        """Real weights of the function of its span nearest to `values`, in the mean square over the states."""

        def blocks() -> Iterator[tuple[Array, Array]]:
            for lo in range(0, len(states), BLOCK):
                yield self.features(states[lo : lo + BLOCK]), values(states[lo : lo + BLOCK])

        return theory.project(blocks())

    def q(self, Z: Array, W: Array) -> Array:
        """Values of real weights, a block at a time."""
        return np.vstack([self.features(Z[lo : lo + BLOCK]) @ W for lo in range(0, len(Z), BLOCK)])


def members(run: str | Path, ex: exchange.Exchange) -> list[Member]:
    """The QHD clients of the exchange; others have no features to compile into."""
    found = []
    for i, old in enumerate(ex.before):
        new = load_policy(run, i).model
        if isinstance(old, Readout) and isinstance(new, Readout):
            for name, W in (("before", old.W), ("after", new.W)):
                if not np.isfinite(W).all():
                    raise FedQHDError(
                        f"client {i} of run={str(run)!r} has weights {name} the exchange that are not finite"
                    )
            found.append(Member(i, old.encoder, stacked_weights(old.W), stacked_weights(new.W), ex.anchors))
    if not found:
        raise FedQHDError(f"run={str(run)!r} has no QHD client: only those compile a teacher by a ridge solve")
    return found


def run_config(run: str | Path) -> Config:
    file = Path(run) / "config.toml"
    if not file.exists():
        raise FedQHDError(f"run={str(run)!r} is no folder of a run: it holds no config.toml")
    return Config(**known_keys(str(file), read_toml(file)))


def number_of_states(clients: Sequence[Member], given: int | None) -> int:
    """Enough to project on, and for angles between those spans that are small enough to have them."""
    pairs = [states_needed(a.p, b.p) for a in clients for b in clients if a.index < b.index]
    need = max([2 * max(c.p for c in clients), *(n for n in pairs if n <= ANGLE_STATES)])
    if given is not None and given < need:
        raise FedQHDError(
            f"states={given} are too few for spans of up to {max(c.p for c in clients)} features: on a smaller sample "
            f"every angle is 0 and every projection exact; at least {need} are needed"
        )
    return given or max(FEWEST, need)


def measure_gap(
    run: str | Path, reference: Policy | None = None, *, states: int | None = None, episodes: int = 20, seed: int = 0
) -> dict[str, Any]:
    """Everything that `fedqhd gap RUN` prints and draws. `reference` is the policy of a Q* to project."""
    c = run_config(run)
    ex = exchange.load(run)
    clients = members(run, ex)
    theory.check_shared([m.anchors for m in clients])
    n = number_of_states(clients, states)
    check_gap(len(ex.anchors), max(m.p for m in clients))
    policies = [load_policy(run, m.index) for m in clients]
    own = rng.generator(seed, rng.PUBLIC, "gap")
    with threadpool_limits(1):
        scaler = policies[0].scaler
        fit = np.vstack(list(sample(c.env, scaler, policies, -(-n // len(SOURCES)), own).values()))
        held = sample(c.env, scaler, policies, HELD_OUT, own)
        bases = _bases(clients, fit)
        world = _World(c, scaler, fit, held, episodes, seed)
        oracle = _Oracles(clients, ex, world, reference, bases) if reference else None
        rows = []
        for member in clients:
            spectrum = Spectrum(member.features(ex.anchors))
            row = _client(member, spectrum, ex, world)
            if oracle:
                row |= oracle.of(member, spectrum)
            rows.append(row)
    return {
        "run": str(run), "env": c.env, "seed": c.seed, "compile": c.compile, "lam": c.lam, "anchors": len(ex.anchors),
        "anchor_source": c.anchor_source, "states": len(fit), "inner_product": "sum over the states of f(s) g(s)",
        "reference": reference is not None, "clients": rows, "angles": _angles(clients, bases),
    }  # fmt: skip


@dataclass(frozen=True)
class _World:
    """What all clients are measured on."""

    config: Config
    scaler: StateScaler
    fit: Array
    held: dict[str, Array]
    episodes: int
    seed: int

    def greedy(self, member: Member, W: Array) -> float:
        """Mean return of the greedy policy of real weights W in the nominal environment."""
        weights = W[: member.encoder.D] + 1j * W[member.encoder.D :] if member.p > member.encoder.D else W
        model = Readout(member.encoder, weights.astype(member.encoder.dtype))
        env = make_env(self.config.env)
        returns = greedy_returns(
            Policy(model, self.scaler, self.config.env), env, self.episodes, self.seed, member.index
        )
        env.close()
        return float(returns.mean())


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def _client(member: Member, anchors: Spectrum, ex: exchange.Exchange, world: _World) -> dict[str, Any]:
    """What needs no Q*: the anchors' geometry, and how far from the teacher the client ended, and why."""
    c = world.config
    X = member.features(ex.anchors)
    start = member.before if c.compile == "warm-start" else 0.0
    best = member.project(world.fit, ex.teacher)
    parts = theory.split(anchors, ex.Q, X, best, c.lam, start)
    other = anchors.solve(ex.Q - X @ (member.before - start), c.lam) + (member.before - start)
    errors = {}
    for name, Z in world.held.items():
        T, Phi = ex.teacher(Z), member.features(Z)
        compiled = Phi @ member.after
        errors[name] = {
            "before": _rms(Phi @ member.before - T),
            "after": _rms(compiled - T),
            "after_max": float(np.abs(compiled - T).max()),
            "other_compile": _rms(Phi @ other - T),
            "greedy_changed": float(np.mean(compiled.argmax(axis=1) != T.argmax(axis=1))),
            "misfit": _rms(Phi @ (best + parts.leaked) - T),
            "held_back": _rms(Phi @ (parts.shrunk + parts.unseen)),
        }
    return {
        "client": member.index, "D": member.encoder.D, "features": member.p, "rank": anchors.rank, "rtol": anchors.rtol,
        "gamma": anchors.gamma, "condition": anchors.condition, "effective_rank": anchors.effective_rank(c.lam),
        "eigenvalues": [float(x) for x in anchors.s**2],
        "anchor_residual": _rms(X @ member.after - ex.Q),
        "invisible": _rms(ex.Q - anchors.visible(ex.Q)),
        "outside_row_space": theory.outside(anchors, member.before),
        "recompiled": _rms(X @ (best + parts.total) - X @ member.after),
        "errors": errors,
        "greedy_before": world.greedy(member, member.before),
        "greedy_after": world.greedy(member, member.after),
    }  # fmt: skip


class _Oracles:
    """The clients' projections of Q*, and the gap of each against its own."""

    def __init__(
        self, clients: Sequence[Member], ex: exchange.Exchange, world: _World, reference: Policy, bases: Bases
    ) -> None:
        self.clients, self.world = clients, world

        def q_star(Z: Array) -> Array:
            # The reference scales states in its own way.
            return reference.q(Z * world.scaler.scale + world.scaler.shift).astype(np.float64)

        truth = q_star(world.fit)
        self.weights = [m.project(world.fit, q_star) for m in clients]
        self.B = float(np.linalg.norm(truth, axis=0).max())
        rest = [truth - m.q(world.fit, W) for m, W in zip(clients, self.weights, strict=True)]
        self.epsilon = np.array([np.linalg.norm(e, axis=0).max() for e in rest])
        pi = np.array([ex.pi[m.index] for m in clients])
        self.pi = pi / pi.sum()
        self.teacher = sum(
            p * m.features(ex.anchors) @ W for p, m, W in zip(self.pi, clients, self.weights, strict=True)
        )
        self.anchors = ex.anchors
        self.sines = np.array([[_sine(a, b, bases) for b in clients] for a in clients])
        self.q_star = q_star

    def of(self, member: Member, anchors: Spectrum) -> dict[str, Any]:
        world, k = self.world, self.clients.index(member)
        W_hat, X, lam = self.weights[k], member.features(self.anchors), world.config.lam
        parts = theory.split(anchors, self.teacher, X, W_hat, lam)
        warm = theory.split(anchors, self.teacher, X, W_hat, lam, W_hat)
        h = theory.h_bar(k, self.B, self.sines, self.epsilon, self.pi)
        bound = theory.gap_bound(anchors, h, W_hat, parts, lam)
        held = np.vstack(list(world.held.values()))
        Phi, truth = member.features(held), self.q_star(held)
        oracle = Phi @ W_hat
        after = theory.measure(oracle, Phi @ member.after)
        greedy_oracle, greedy_after = world.greedy(member, W_hat), world.greedy(member, member.after)
        return {
            "bound": {**bound._asdict(), "total": bound.total, "B": self.B, "epsilon": float(self.epsilon[k])},
            "static_gap": theory.measure(Phi @ parts.total, np.zeros_like(oracle))._asdict(),
            "static_gap_warm_start": theory.measure(Phi @ warm.total, np.zeros_like(oracle))._asdict(),
            "gap": after._asdict(),
            "gap_before": theory.measure(oracle, Phi @ member.before)._asdict(),
            "compilation_error": after.max,
            "representation_rms": _rms(oracle - truth),
            "greedy_oracle": greedy_oracle,
            "policy_value_gap": greedy_oracle - greedy_after,
        }


Bases = dict[int, Array]


def _bases(clients: Sequence[Member], states: Array) -> Bases:
    """Orthonormal bases of those spans that are small enough for an angle with another."""
    small = [m for m in clients if any(states_needed(m.p, o.p) <= ANGLE_STATES for o in clients if o is not m)]
    return {m.index: span(m.features(states)) for m in small}


def _sine(a: Member, b: Member, bases: Bases) -> float:
    """The larger of ||(I - Pi_a) Pi_b|| and ||(I - Pi_b) Pi_a||: where D differs, the larger span sticks out."""
    if a is b:
        return 0.0
    if a.p != b.p or states_needed(a.p, b.p) > ANGLE_STATES:
        return 1.0
    return max(misalignment(bases[a.index], bases[b.index]), misalignment(bases[b.index], bases[a.index]))


def _angles(clients: Sequence[Member], bases: Bases) -> list[dict[str, Any]]:
    """Principal angles of each pair that is small enough, in degrees, and both ||(I - Pi_i) Pi_j||."""
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


def verdict(row: dict[str, Any]) -> str:
    """One sentence on what the exchange did to a client where policies go, and why it did no more."""
    there, near = row["errors"]["policy"], row["errors"]["rollouts"]
    gain = there["before"] / max(there["after"], np.finfo(float).tiny)
    did = f"{gain:.1f} times nearer to" if gain > 1.1 else "no nearer to" if gain > 0.9 else "further from"
    if there["misfit"] >= there["held_back"]:
        why = "the rest its features cannot express; a larger D, or another sigma, would"
    elif there["after"] > FAR * near["after"]:
        why = "the anchors hardly see the rest; anchors where policies go (anchor_source=teacher) would"
    else:
        why = "lam holds the rest back; a smaller one, or more anchors, would not"
    moved = f"{there['before']:.3g} → {there['after']:.3g}"
    return f"where policies go the exchange brought it {did} the teacher ({moved}); {why}"
