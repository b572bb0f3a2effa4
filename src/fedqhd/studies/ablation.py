"""The paper's two ablations: the gap as D grows with m = 4D, and as m passes D.

Analytic: no training. Every client has its oracle projection of Q*, one exchange is made of those, and its gap is what
the theorem is about. The learning curve is of clients that learn Q* by regression on noisy values between exchanges.
Trained: the same measures of finished runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from fedqhd.agents.policy import Policy
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.encoders.settings import encoder_of
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.public import scaler_of
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap.bound import measure
from fedqhd.gap.compiled import Member, members
from fedqhd.gap.measure import HELD_OUT, run_config
from fedqhd.gap.states import sample
from fedqhd.linalg.ridge import Ridge
from fedqhd.runs import exchange
from fedqhd.studies.presets import plain

MODES = ("overwrite", "warm-start")
CLIENTS = 3
FIT_STATES = 8192
ROUNDS, FRESH, NOISE, FIT_LAM = 20, 100, 10.0, 0.3
"""Of learning by regression: exchanges, fresh states of a client before each, noise in their values, ridge."""


@dataclass(frozen=True)
class Setting:
    """One seed's world: states, their Q*, and the settings that encoders and anchors are drawn with."""

    config: Config
    reference: Policy
    scaler: StateScaler
    fit: Array
    held: Array
    near: Array
    """Held-out anchors: fresh states of their source, on which the paper measures. `held` has all that clients meet."""

    @classmethod
    def make(cls, config: Config, reference: Policy) -> Setting:
        env = make_env(config.env, repeat=config.action_repeat)
        scaler = scaler_of(config, env)
        env.close()
        own = rng.generator(config.seed, rng.PUBLIC, "ablation")
        fit = sample(scaler, [reference], FIT_STATES // 3, own)
        held = sample(scaler, [reference], HELD_OUT, own)
        env = make_env(config.env, repeat=config.action_repeat)
        near = make_anchors(config.anchor_source, HELD_OUT, "", env, scaler, own)
        env.close()
        return cls(config, reference, scaler, np.vstack(list(fit.values())), np.vstack(list(held.values())), near)

    def gaps(self, clients: Sequence[Member], W: Sequence[Array], oracles: Sequence[Array]) -> dict[str, float]:
        """Largest and RMS difference from the oracles, mean of the clients, on held-out anchors and everywhere."""
        found = {}
        for name, Z in (("gap", self.near), ("gap_everywhere", self.held)):
            each = [measure(k.q(Z, w), k.q(Z, o)) for k, w, o in zip(clients, W, oracles, strict=True)]
            found[f"{name}_max"] = float(np.mean([g.max for g in each]))
            found[f"{name}_rms"] = float(np.mean([g.rms for g in each]))
        return found

    def q_star(self, Z: Array) -> Array:
        return self.reference.q(self.scaler.raw(Z)).astype(np.float64)

    def greedy(self, member: Member, W: Array, episodes: int) -> float:
        return member.greedy(W, self.scaler, self.config, episodes, self.config.seed)


def analytic(setting: Setting, D: int, m: int, episodes: int = 3) -> list[dict[str, Any]]:
    """A row for each mode of compilation: the gap of one exchange of oracles, its greedy return, the learning curve."""
    c = plain({**_given(setting.config), "dims": [D], "anchors": m})
    with threadpool_limits(1):
        env = make_env(c.env, repeat=c.action_repeat)
        states = make_anchors(c.anchor_source, m, "", env, setting.scaler, rng.generator(c.seed, rng.PUBLIC, "anchors"))
        env.close()
        nothing = np.zeros((0, 0))
        clients = [Member(i, encoder_of(c, i, states), nothing, nothing, states) for i in range(c.clients)]
        X = [k.features(states) for k in clients]
        ridges = [Ridge(x, c.lam) for x in X]
        oracles = [k.project(setting.fit, setting.q_star) for k in clients]
        curves = learn(setting, clients, X, ridges, c.seed)
        teacher = np.mean([x @ W for x, W in zip(X, oracles, strict=True)], axis=0)
        rows = []
        for mode in MODES:
            start = [W if mode == "warm-start" else 0 * W for W in oracles]
            compiled = [W + r.solve(teacher - x @ W) for x, r, W in zip(X, ridges, start, strict=True)]
            greedy = [setting.greedy(k, W, episodes) for k, W in zip(clients, compiled, strict=True)]
            oracle = [setting.greedy(k, W, episodes) for k, W in zip(clients, oracles, strict=True)]
            rows.append({
                "D": D, "m": m, "seed": c.seed, "compile": mode,
                **setting.gaps(clients, compiled, oracles), "greedy": float(np.mean(greedy)),
                "greedy_oracle": float(np.mean(oracle)), "curve": curves[mode], "alone": curves["alone"],
            })  # fmt: skip
    return rows


def _given(c: Config) -> dict[str, Any]:
    return {k: getattr(c, k) for k in ("env", "setting", "clients", "sigma", "anchor_source", "lam", "seed")}


def learn(
    setting: Setting, clients: Sequence[Member], X: Sequence[Array], ridges: Sequence[Ridge], seed: int
) -> dict[str, list[float]]:
    """RMS error against Q* after each exchange, mean of the clients, for each mode and for clients that stay alone.

    Before an exchange, each client meets fresh states with noisy values of Q* and fits them, near what it had.
    """
    truth, features = setting.q_star(setting.held), [k.features(setting.held) for k in clients]
    curves: dict[str, list[float]] = {}
    for mode in (*MODES, "alone"):
        W = [np.zeros((x.shape[1], truth.shape[1])) for x in X]
        own = [rng.generator(seed, k.index, "regression") for k in clients]
        curves[mode] = []
        for _ in range(ROUNDS):
            for i, k in enumerate(clients):
                states = setting.fit[own[i].choice(len(setting.fit), FRESH, replace=False)]
                Phi = k.features(states)
                noisy = setting.q_star(states) + NOISE * own[i].normal(size=(FRESH, truth.shape[1]))
                W[i] = W[i] + Ridge(Phi, FIT_LAM).solve(noisy - Phi @ W[i])
            if mode != "alone":
                teacher = np.mean([x @ w for x, w in zip(X, W, strict=True)], axis=0)
                keep = 1.0 if mode == "warm-start" else 0.0
                W = [keep * w + r.solve(teacher - keep * x @ w) for x, r, w in zip(X, ridges, W, strict=True)]
            curves[mode].append(
                float(np.mean([np.sqrt(np.mean((f @ w - truth) ** 2)) for f, w in zip(features, W, strict=True)]))
            )
    return curves


def trained(run: str | Path, setting: Setting, summary: Mapping[str, Any], returns: Array) -> dict[str, Any]:
    """The same row of a finished run: its last weights against its clients' oracles, its greedy return, its curve."""
    c = run_config(run)
    ex = exchange.load(run)
    with threadpool_limits(1):
        clients = members(run, ex)
        oracles = [k.project(setting.fit, setting.q_star) for k in clients]
        gaps = setting.gaps(clients, [k.after for k in clients], oracles)
    return {
        "D": c.dims[0], "m": c.anchors, "seed": c.seed, "compile": c.compile,
        **gaps,
        "greedy": summary["greedy_return"], "final": summary["final_return"], "curve": returns.mean(axis=0).tolist(),
    }  # fmt: skip


def slope(rows: Sequence[Mapping[str, Any]], value: str, over: str = "D") -> tuple[float, float, float]:
    """(slope, low, high) of log value against log D over all rows, with its 95 % interval by Student's t."""
    x, y = (np.log([r[key] for r in rows]) for key in (over, value))
    line = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, len(rows) - 2) * line.stderr)
    return float(line.slope), float(line.slope) - half, float(line.slope) + half
