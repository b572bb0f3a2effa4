"""The paper's claims about the gap; each function returns the numbers that test one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import subspace_angles

from fedqhd.agents.model import Readout
from fedqhd.agents.policy import load_policy
from fedqhd.core import rng
from fedqhd.core.protocols import Array
from fedqhd.encoders import ENCODERS
from fedqhd.encoders.settings import encoder_of
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.gap import bound as theory
from fedqhd.gap.compiled import Member
from fedqhd.gap.reference import CHECK_STATES, bellman_error, discounted_returns, reference, settings_for
from fedqhd.linalg.geometry import Spectrum, misalignment, span
from fedqhd.linalg.ridge import compile_teacher, stacked
from fedqhd.studies.ablation import Setting
from fedqhd.studies.presets import plain

Values = dict[str, Any]
"""Numbers by name."""


def invisibility(seed: int) -> Values:
    """Compile the part of a teacher outside the span, for the real and the complex span; return the largest weights."""
    generator = np.random.default_rng(seed)
    X = ENCODERS["complex"].sample(3, 15, 1.0, generator)(generator.normal(size=(60, 3)))
    Q = generator.normal(size=(60, 2))
    S = stacked(X)
    real = Q - S @ np.linalg.lstsq(S, Q, rcond=None)[0]
    U = np.linalg.svd(X, full_matrices=False)[0]
    wrong = (Q - U @ (U.conj().T @ Q)).real
    return {"real span": peak(compile_teacher(X, real, 1e-2)), "complex span": peak(compile_teacher(X, wrong, 1e-2))}


def peak(x: Array) -> float:
    """Return the largest absolute entry."""
    return float(np.abs(x).max())


def counter_example(seed: int, m: int) -> Values:
    """Compare bound and gap for one client, so that h_bar = 0, with D = 500, lam = 1e-6 and an oracle of norm 4."""
    generator = np.random.default_rng(seed)
    encoder = ENCODERS["fourier"].sample(4, 500, 0.5, generator)
    X, Phi = encoder(generator.uniform(-2, 2, (m, 4))), encoder(generator.uniform(-2, 2, (2000, 4)))
    W = generator.normal(size=(500, 1))
    W *= 4 / np.linalg.norm(W)
    anchors = Spectrum(X)
    bound = theory.gap_bound(anchors, 0.0, W, theory.split(anchors, X @ W, X, W, 1e-6), 1e-6)
    warm = theory.split(anchors, X @ W, X, W, 1e-6, W)
    return {
        "bound": bound.total, "gap": peak(Phi @ (W - compile_teacher(X, X @ W, 1e-6))), "valid": bound.valid,
        "corrected bound": bound.corrected, "warm-start gap": peak(Phi @ warm.total),
    }  # fmt: skip


def zero_gap(seed: int) -> Values:
    """Measure the gap of two clients with the same span, and then with each condition for a zero gap violated alone.

    The features of the second client are those of the first, multiplied by an invertible matrix.
    """
    generator = np.random.default_rng(seed)
    encoder, other = (ENCODERS["fourier"].sample(3, 40, 1.0, generator) for _ in range(2))
    mix = generator.normal(size=(40, 40)) / 40 + np.eye(40)
    states, held = generator.uniform(-2, 2, (4000, 3)), generator.uniform(-2, 2, (1000, 3))
    truth = np.sin(3 * states[:, :1]) * states[:, 1:2] ** 2  # in neither span

    def gap(m: int, lam: float, second: Callable[[Array], Array]) -> float:
        Phis: list[Callable[[Array], Array]] = [encoder, second]
        W = [np.linalg.lstsq(f(states), truth, rcond=None)[0] for f in Phis]
        X = [f(states[:m]) for f in Phis]
        teacher = (X[0] @ W[0] + X[1] @ W[1]) / 2
        return peak(encoder(held) @ (W[0] - compile_teacher(X[0], teacher, lam)))

    def aligned(s: Array) -> Array:
        return encoder(s) @ mix

    return {
        "all hold (and a representation error)": gap(400, 0.0, aligned), "m = D/2": gap(20, 0.0, aligned),
        "lam = 0.01": gap(400, 1e-2, aligned), "other span": gap(400, 0.0, other),
    }  # fmt: skip


def amplification(source: str, lam: float, D: int = 64) -> Values:
    """Return sqrt(m / (gamma + lam)) for m from D to 64 D, and the slope of log(gamma) over log(m) from 4 D on."""
    c = plain({"env": "CartPole-v1", "setting": "heterogeneous", "dims": [D], "seed": 0})
    world = Setting.make(c, reference("CartPole-v1")[0])
    env = make_env(c.env)
    pool = make_anchors(source, 64 * D, "", env, world.scaler, rng.generator(0, rng.PUBLIC, "anchors"))
    env.close()
    pool = np.random.default_rng(0).permutation(pool)
    X = encoder_of(c, 0, pool)(pool)
    ms = D * 2 ** np.arange(7)
    gammas = [Spectrum(X[:m], rtol=0.0).gamma for m in ms]
    far = np.array(ms) >= 4 * D
    return {
        "factor": [float(np.sqrt(m / (g + lam))) for m, g in zip(ms, gammas, strict=True)],
        "slope of gamma from 4D on": float(stats.linregress(np.log(ms[far]), np.log(np.array(gammas)[far])).slope),
    }


def bounds(env: str, D: int, m: int, lam: float, seed: int, source: str) -> Values:
    """Compare all terms of the bound with the gap of three clients that exchange their oracles, on a real task."""
    c = plain(
        {"env": env, "setting": "heterogeneous", "clients": 3, "dims": [D], "anchor_source": source, "seed": seed}
    )
    world = Setting.make(c, reference(env)[0])
    e = make_env(c.env)
    states = make_anchors(source, m, "", e, world.scaler, rng.generator(seed, rng.PUBLIC, "anchors"))
    e.close()
    unused = np.zeros((0, 0))
    clients = [Member(i, encoder_of(c, i, states), unused, unused, states) for i in range(3)]
    # The anchors are included, so that values at them are bounded by the norm over the states.
    fit = np.vstack([states, world.fit])
    truth = world.q_star(fit)
    oracles = [k.project(fit, world.q_star) for k in clients]
    epsilon = np.array(
        [np.linalg.norm(truth - k.q(fit, W), axis=0).max() for k, W in zip(clients, oracles, strict=True)]
    )
    bases = [span(k.features(fit)) for k in clients]
    sines = np.array([[0.0 if a is b else misalignment(a, b) for b in bases] for a in bases])
    B, pi = float(np.linalg.norm(truth, axis=0).max()), np.full(3, 1 / 3)
    X = [k.features(states) for k in clients]
    teacher = np.mean([x @ W for x, W in zip(X, oracles, strict=True)], axis=0)
    anchors = Spectrum(X[0])
    parts = theory.split(anchors, teacher, X[0], oracles[0], lam)
    h = theory.h_bar(0, B, sines, epsilon, pi)
    bound = theory.gap_bound(anchors, h, oracles[0], parts, lam)
    Phi = clients[0].features(world.held_out)
    leaked, kept = peak(Phi @ parts.leaked), peak(Phi @ (parts.shrunk + parts.unseen))
    return {
        "env": env, "D": D, "m": m, "lam": lam, "anchors": source,
        "rank": bound.rank, "valid": bound.valid,
        "gap": peak(Phi @ parts.total), "I": bound.heterogeneity, "II": bound.amplification, "III": bound.shrinkage,
        "corrected": bound.corrected, "B1": kept, "B2": leaked, "sine": float(sines[0, 1]),
        "share of angles in h_bar": theory.h_bar(0, B, sines, 0 * epsilon, pi) / h, "gamma": bound.gamma,
        "warm-start gap": peak(Phi @ theory.split(anchors, teacher, X[0], oracles[0], lam, oracles[0]).total),
        "disagreement of oracles": peak(X[0] @ oracles[0] - teacher),
    }  # fmt: skip


def angles(seed: int) -> Values:
    """Compare scipy's `subspace_angles` with `misalignment` for spans of 20 and 40, and for 40 and 40 on few states."""
    generator = np.random.default_rng(seed)
    small, large = (ENCODERS["fourier"].sample(3, D, 0.5, generator) for D in (20, 40))
    third = ENCODERS["fourier"].sample(3, 40, 0.5, generator)
    states = generator.uniform(-2, 2, (200, 3))
    U, V = span(small(states)), span(large(states))
    few = states[:40]
    return {
        "||(I-P_small)P_large||": misalignment(U, V),
        "||(I-P_large)P_small||": misalignment(V, U),
        "largest angle by subspace_angles, degrees": float(np.degrees(subspace_angles(U, V).max())),
        "two spans of 40 on 40 states, degrees": float(np.degrees(subspace_angles(large(few), third(few)).max())),
        "two spans of 40 on 200 states, degrees": float(
            np.degrees(subspace_angles(large(states), third(states)).max())
        ),
    }


def q_star(env: str) -> Values:
    """Return the checks of a reference Q*, and the median difference between its two best actions on its own path."""
    policy, about = reference(env)
    c = plain({"env": env, "setting": "heterogeneous"})
    world = Setting.make(c, policy)
    k = len(world.held_out) // 3
    Q = np.sort(world.q_star(world.held_out[2 * k :]), axis=1)
    checked = {key: v for key, v in about.items() if key not in ("version", "env", "settings")}
    return {**checked, "median action gap on its path": float(np.median(Q[:, -1] - Q[:, -2]))}


def check_trained_policy(env: str, run: Path, client: int) -> Values:
    """Apply the checks of the reference Q* to a trained QHD client, on the same states.

    Args:
        env: An environment that has a reference Q*.
        run: The folder of the run.
        client: The index of the client.
    """
    grid = settings_for(env)
    states = rng.generator(0, rng.PUBLIC, "reference").uniform(grid.low, grid.high, (CHECK_STATES, len(grid.low)))
    policy = load_policy(run, client)
    assert isinstance(policy.model, Readout)
    promised, real = policy.q(states).max(axis=1), discounted_returns(policy, states, grid.gamma)
    return {
        "D": policy.model.encoder.D, "bellman_error_mean": float(bellman_error(policy, states, grid.gamma).mean()),
        "promised_mean": float(promised.mean()), "earned_mean": float(real.mean()),
        "promised_off_by": float(np.abs(promised - real).mean()),
    }  # fmt: skip
