"""What the last federation of a finished run cost each client, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.gap import bound as theory
from fedqhd.gap.compiled import Member, members
from fedqhd.gap.oracles import ANGLE_STATES, Measurement, Oracles, angles, make_bases, rms
from fedqhd.gap.states import SOURCES, sample
from fedqhd.linalg.geometry import Spectrum, states_needed
from fedqhd.runs import exchange
from fedqhd.runs.config import load_config
from fedqhd.runs.limits import free_memory

HELD_OUT = 1000
"""States of each source on which differences are measured; none of them is an anchor."""
FEWEST = 8000
"""States on which functions are projected, at the least."""
FAR = 3.0
"""An error this many times that on random rollouts is one of where the anchors are."""


def run_config(run: str | Path) -> Config:
    file = Path(run) / "config.toml"
    if not file.exists():
        raise FedQHDError(f"run={str(run)!r} is no folder of a run: it holds no config.toml")
    return load_config(file)


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


def check_gap(m: int, p: int) -> None:
    """The gap needs the thin SVD of m x p features, then p x p normal equations, one client after the other."""
    need, free = max(theory.svd_bytes(m, p), 2 * 8 * p * p), free_memory()
    if free is not None and need > free:
        raise FedQHDError(
            f"anchors={m} and {p} real features need {need / 1e9:.1f} GB for their decomposition, and "
            f"{free / 1e9:.1f} GB are free: choose fewer anchors or smaller dims"
        )


def measure_gap(
    run: str | Path, reference: Policy | None = None, *, states: int | None = None, episodes: int = 20, seed: int = 0
) -> dict[str, Any]:
    """Everything that `fedqhd gap RUN` prints and draws. `reference` is the policy of a Q* to project."""
    c = run_config(run)
    ex = exchange.load(run)
    clients = members(run, ex)
    n = number_of_states(clients, states)
    check_gap(len(ex.anchors), max(m.p for m in clients))
    policies = [load_policy(run, m.index) for m in clients]
    own = rng.generator(seed, rng.PUBLIC, "gap")
    with threadpool_limits(1):
        scaler = policies[0].scaler
        fit = np.vstack(list(sample(scaler, policies, -(-n // len(SOURCES)), own).values()))
        held = sample(scaler, policies, HELD_OUT, own)
        bases = make_bases(clients, fit)
        measurement = Measurement(c, scaler, fit, held, episodes, seed)
        oracle = Oracles(clients, ex, measurement, reference, bases) if reference else None
        rows = []
        try:
            theory.check_shared([m.anchors for m in clients])
            for member in clients:
                spectrum = Spectrum(member.features(member.anchors))
                row = _client(member, spectrum, ex, measurement)
                rows.append(row | (oracle.of(member, spectrum) if oracle else {}))
        except ValueError as error:
            raise FedQHDError(f"run={str(run)!r} has no gap to measure: {error}") from error
    return {
        "run": str(run), "env": c.env, "seed": c.seed, "compile": c.compile, "lam": c.lam, "anchors": len(ex.anchors),
        "anchor_source": c.anchor_source, "states": len(fit), "inner_product": "sum over the states of f(s) g(s)",
        "reference": reference is not None, "clients": rows, "angles": angles(clients, bases),
    }  # fmt: skip


def _client(member: Member, anchors: Spectrum, ex: exchange.Exchange, measurement: Measurement) -> dict[str, Any]:
    """What needs no Q*: the anchors' geometry, and how far from the teacher the client ended, and why."""
    c = measurement.config
    X = member.features(ex.anchors)
    start = member.before if c.compile == "warm-start" else 0.0
    best = member.project(measurement.fit, ex.teacher)
    parts = theory.split(anchors, ex.Q, X, best, c.lam, start)
    other = anchors.solve(ex.Q - X @ (member.before - start), c.lam) + (member.before - start)
    errors = {}
    for name, Z in measurement.held.items():
        T, Phi = ex.teacher(Z), member.features(Z)
        compiled = Phi @ member.after
        errors[name] = {
            "before": rms(Phi @ member.before - T),
            "after": rms(compiled - T),
            "after_max": float(np.abs(compiled - T).max()),
            "other_compile": rms(Phi @ other - T),
            "greedy_changed": float(np.mean(compiled.argmax(axis=1) != T.argmax(axis=1))),
            "misfit": rms(Phi @ (best + parts.leaked) - T),
            "held_back": rms(Phi @ (parts.shrunk + parts.unseen)),
        }
    return {
        "client": member.index, "D": member.encoder.D, "features": member.p, "rank": anchors.rank, "rtol": anchors.rtol,
        "gamma": anchors.gamma, "condition": anchors.condition, "effective_rank": anchors.effective_rank(c.lam),
        "eigenvalues": [float(x) for x in anchors.s**2],
        "anchor_residual": rms(X @ member.after - ex.Q),
        "invisible": rms(ex.Q - anchors.visible_values(ex.Q)),
        "outside_row_space": theory.outside(anchors, member.before),
        "recompiled": rms(X @ (best + parts.total) - X @ member.after),
        "errors": errors,
        "greedy_before": measurement.greedy(member, member.before),
        "greedy_after": measurement.greedy(member, member.after),
    }  # fmt: skip


def verdict(row: dict[str, Any]) -> str:
    """One sentence on what the exchange did to a client where policies go, and why it did no more."""
    there, near = row["errors"]["policy"], row["errors"]["rollouts"]
    gain = there["before"] / max(there["after"], np.finfo(float).tiny)
    did = f"{gain:.1f} times nearer to" if gain > 1.1 else "no nearer to" if gain > 0.9 else "further from"
    if there["misfit"] >= there["held_back"]:
        why = "its features cannot express the rest: a larger D or another sigma would help"
    elif there["after"] > FAR * near["after"]:
        why = "the anchors hardly see the rest: anchors where policies go (anchor_source=teacher) would help"
    else:
        why = "the ridge holds the rest back: a smaller lam or more anchors would help"
    moved = f"{there['before']:.3g} → {there['after']:.3g}"
    return f"where policies go the exchange brought it {did} the teacher ({moved}); {why}"
