"""The federation gap of a finished run: how far its last exchange left each client from the teacher, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core import rng
from fedqhd.core.blas import single_threaded
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
"""The number of held-out states of each source on which differences are measured."""
MIN_STATES = 8000
"""The least number of states on which functions are projected."""
FAR_FACTOR = 3.0
"""If the error on policy states exceeds that on random rollouts by this factor, the anchors are in the wrong place."""


def run_config(run: str | Path) -> Config:
    """Return the configuration of a run, or raise FedQHDError if the folder has none."""
    file = Path(run) / "config.toml"
    if not file.exists():
        raise FedQHDError(f"run={str(run)!r} is not the folder of a run: it has no config.toml")
    return load_config(file)


def number_of_states(clients: Sequence[Member], requested: int | None) -> int:
    """Return how many states projections and angles are computed on.

    Args:
        clients: The clients whose spans are compared.
        requested: The number that the user asked for, or None for a sufficient one.

    Raises:
        FedQHDError: If the requested number is too small.
    """
    pairs = [states_needed(a.p, b.p) for a in clients for b in clients if a.index < b.index]
    need = max([2 * max(c.p for c in clients), *(n for n in pairs if n <= ANGLE_STATES)])
    if requested is not None and requested < need:
        raise FedQHDError(
            f"states={requested} are too few for spans of up to {max(c.p for c in clients)} features: on a smaller "
            f"sample every angle is 0 and every projection is exact; at least {need} are needed"
        )
    return requested or max(MIN_STATES, need)


def check_memory(m: int, p: int) -> None:
    """Check that the decompositions for m anchors and p real features fit into memory.

    One client at a time needs the thin SVD of its m x p features and then p x p normal equations.

    Raises:
        FedQHDError: If they need more memory than is free.
    """
    need, free = max(theory.svd_bytes(m, p), 2 * 8 * p * p), free_memory()
    if free is not None and need > free:
        raise FedQHDError(
            f"anchors={m} and {p} real features need {need / 1e9:.1f} GB for their decomposition, but "
            f"only {free / 1e9:.1f} GB are free: choose fewer anchors or smaller dims"
        )


def measure_gap(
    run: str | Path, reference: Policy | None = None, *, states: int | None = None, episodes: int = 20, seed: int = 0
) -> dict[str, Any]:
    """Measure the federation gap of the last exchange of a run.

    Args:
        run: The folder of a finished run whose clients compile at anchors.
        reference: The policy whose Q is Q*, or None to compare with the teacher alone.
        states: The number of states on which functions are projected; None for a sufficient one.
        episodes: Greedy episodes for each return.
        seed: The seed of states and episodes.

    Returns:
        The report that `fedqhd gap RUN` prints and draws: an entry for each QHD client, and the angles of each pair.

    Raises:
        FedQHDError: If the run has no such exchange, or if it cannot be measured.
    """
    c = run_config(run)
    ex = exchange.load(run)
    clients = members(run, ex)
    n = number_of_states(clients, states)
    check_memory(len(ex.anchors), max(m.p for m in clients))
    policies = [load_policy(run, m.index) for m in clients]
    generator = rng.generator(seed, rng.PUBLIC, "gap")
    with single_threaded():
        scaler = policies[0].scaler
        fit = np.vstack(list(sample(scaler, policies, -(-n // len(SOURCES)), generator).values()))
        held = sample(scaler, policies, HELD_OUT, generator)
        bases = make_bases(clients, fit)
        measurement = Measurement(c, scaler, fit, held, episodes, seed)
        oracle = Oracles(clients, ex, measurement, reference, bases) if reference else None
        rows = []
        try:
            theory.check_shared([m.anchors for m in clients])
            for member in clients:
                spectrum = Spectrum(member.features(member.anchors))
                row = _client(member, spectrum, ex, measurement)
                rows.append(row | (oracle.measure_client(member, spectrum) if oracle else {}))
        except ValueError as error:
            raise FedQHDError(f"run={str(run)!r} has no gap to measure: {error}") from error
    return {
        "run": str(run), "env": c.env, "seed": c.seed, "compile": c.compile, "lam": c.lam, "anchors": len(ex.anchors),
        "anchor_source": c.anchor_source, "states": len(fit), "inner_product": "sum over the states of f(s) g(s)",
        "reference": reference is not None, "clients": rows, "angles": angles(clients, bases),
    }  # fmt: skip


def _client(member: Member, anchors: Spectrum, ex: exchange.Exchange, measurement: Measurement) -> dict[str, Any]:
    """Return what can be said without Q*: the geometry of the anchors, and the client's distance from the teacher."""
    c = measurement.config
    X = member.features(ex.anchors)
    start = member.before if c.compile == "warm-start" else 0.0
    best = member.project(measurement.fit, ex.teacher)
    parts = theory.split(anchors, ex.Q, X, best, c.lam, start)
    other = anchors.solve(ex.Q - X @ (member.before - start), c.lam) + (member.before - start)
    errors = {}
    for name, Z in measurement.held_out.items():
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
        "outside_row_space": theory.share_outside(anchors, member.before),
        "recompiled": rms(X @ (best + parts.total) - X @ member.after),
        "errors": errors,
        "greedy_before": measurement.greedy(member, member.before),
        "greedy_after": measurement.greedy(member, member.after),
    }  # fmt: skip


def verdict(row: dict[str, Any]) -> str:
    """Return one sentence on how much nearer to the teacher an exchange brought a client, and what limited it.

    Args:
        row: The entry of a client in the report of `measure_gap`.
    """
    on_policy, on_rollouts = row["errors"]["policy"], row["errors"]["rollouts"]
    gain = on_policy["before"] / max(on_policy["after"], np.finfo(float).tiny)
    change = f"{gain:.1f} times nearer to" if gain > 1.1 else "no nearer to" if gain > 0.9 else "further from"
    if on_policy["misfit"] >= on_policy["held_back"]:
        why = "its features cannot express the remaining difference: a larger D or another sigma would help"
    elif on_policy["after"] > FAR_FACTOR * on_rollouts["after"]:
        why = "the anchors hardly see these states: anchors that policies visit (anchor_source=teacher) would help"
    else:
        why = "the ridge holds back the remaining difference: a smaller lam or more anchors would help"
    moved = f"{on_policy['before']:.3g} → {on_policy['after']:.3g}"
    return f"on states that policies visit, the exchange brought it {change} the teacher ({moved}); {why}"
