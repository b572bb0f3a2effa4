"""The measurements of the paper's two ablations: the gap over D with m = 4D, and over m around D.

The analytic version needs no training. Every client holds its oracle projection of Q*, the clients exchange once, and
the gap after it is that of the theorem. Its learning curve is that of clients that learn Q* by regression on noisy
values between exchanges. The trained version takes the same measurements of finished runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedqhd.agents.policy import Policy
from fedqhd.core import rng
from fedqhd.core.blas import single_threaded
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
"""The number of states on which functions are projected."""
ROUNDS, FRESH, NOISE, FIT_LAM = 20, 100, 10.0, 0.3
"""Learning by regression: exchanges, new states of a client before each, the noise in their values, and the ridge."""


@dataclass(frozen=True)
class Setting:
    """What the measurements of one seed share.

    `config` has the settings with which encoders and anchors are drawn, and `reference` is the policy of Q*. Functions
    are projected on the scaled states `fit`; `held_out` are further states from all sources.
    """

    config: Config
    reference: Policy
    scaler: StateScaler
    fit: Array
    held_out: Array
    held_out_anchors: Array
    """New states from the source of the anchors, on which the paper measures the gap."""

    @classmethod
    def make(cls, config: Config, reference: Policy) -> Setting:
        """Draw the states for a configuration and its seed."""
        env = make_env(config.env, repeat=config.action_repeat)
        scaler = scaler_of(config, env)
        env.close()
        generator = rng.generator(config.seed, rng.PUBLIC, "ablation")
        fit = sample(scaler, [reference], FIT_STATES // 3, generator)
        held = sample(scaler, [reference], HELD_OUT, generator)
        env = make_env(config.env, repeat=config.action_repeat)
        near = make_anchors(config.anchor_source, HELD_OUT, "", env, scaler, generator)
        env.close()
        return cls(config, reference, scaler, np.vstack(list(fit.values())), np.vstack(list(held.values())), near)

    def gaps(self, clients: Sequence[Member], W: Sequence[Array], oracles: Sequence[Array]) -> dict[str, float]:
        """Measure the gap of clients, averaged over clients.

        Args:
            clients: The clients.
            W: Their weights, each (p, A).
            oracles: The weights of their oracles, each (p, A).

        Returns:
            The largest and the RMS difference, on held-out anchors ("gap_...") and on all held-out states
            ("gap_everywhere_...").
        """
        found = {}
        for name, Z in (("gap", self.held_out_anchors), ("gap_everywhere", self.held_out)):
            each = [measure(k.q(Z, w), k.q(Z, o)) for k, w, o in zip(clients, W, oracles, strict=True)]
            found[f"{name}_max"] = float(np.mean([g.max for g in each]))
            found[f"{name}_rms"] = float(np.mean([g.rms for g in each]))
        return found

    def q_star(self, Z: Array) -> Array:
        """Return Q* at scaled states, (n, A)."""
        return self.reference.q(self.scaler.raw(Z)).astype(np.float64)

    def greedy(self, member: Member, W: Array, episodes: int) -> float:
        """Return the mean greedy return of a client with weights W (p, A)."""
        return member.greedy(W, self.scaler, self.config, episodes, self.config.seed)


def analytic(setting: Setting, D: int, m: int, episodes: int = 3) -> list[dict[str, Any]]:
    """Measure one exchange of oracles, without training.

    Args:
        setting: The states and the reference Q*.
        D: The dimension of all encoders.
        m: The number of anchors.
        episodes: The number of greedy episodes of each client.

    Returns:
        A row for each mode of compilation: the gap, the greedy return, and the learning curve of `learn`.
    """
    c = plain({**_drawn_with(setting.config), "dims": [D], "anchors": m})
    with single_threaded():
        env = make_env(c.env, repeat=c.action_repeat)
        states = make_anchors(c.anchor_source, m, "", env, setting.scaler, rng.generator(c.seed, rng.PUBLIC, "anchors"))
        env.close()
        unused = np.zeros((0, 0))
        clients = [Member(i, encoder_of(c, i, states), unused, unused, states) for i in range(c.clients)]
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


def _drawn_with(c: Config) -> dict[str, Any]:
    return {k: getattr(c, k) for k in ("env", "setting", "clients", "sigma", "anchor_source", "lam", "seed")}


def learn(
    setting: Setting, clients: Sequence[Member], X: Sequence[Array], ridges: Sequence[Ridge], seed: int
) -> dict[str, list[float]]:
    """Let clients learn Q* by regression and return their learning curves.

    Before each exchange, every client gets new states with noisy values of Q* and fits the difference to its present
    values by ridge regression.

    Args:
        setting: The states and the reference Q*.
        clients: The clients.
        X: Their features at the anchors, each (m, p).
        ridges: The factorised ridge problems of X.
        seed: The seed of states and noise.

    Returns:
        For each mode of compilation, and for clients that stay "alone", the RMS error against Q* after each exchange,
        averaged over clients.
    """
    truth, features = setting.q_star(setting.held_out), [k.features(setting.held_out) for k in clients]
    curves: dict[str, list[float]] = {}
    for mode in (*MODES, "alone"):
        W = [np.zeros((x.shape[1], truth.shape[1])) for x in X]
        generators = [rng.generator(seed, k.index, "regression") for k in clients]
        curves[mode] = []
        for _ in range(ROUNDS):
            for i, k in enumerate(clients):
                states = setting.fit[generators[i].choice(len(setting.fit), FRESH, replace=False)]
                Phi = k.features(states)
                noisy = setting.q_star(states) + NOISE * generators[i].normal(size=(FRESH, truth.shape[1]))
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
    """Return the same row for a finished run.

    Args:
        run: The folder of the run.
        setting: The states and the reference Q* of its seed.
        summary: The summary of the run.
        returns: Its training returns, (clients, episodes).
    """
    c = run_config(run)
    ex = exchange.load(run)
    with single_threaded():
        clients = members(run, ex)
        oracles = [k.project(setting.fit, setting.q_star) for k in clients]
        gaps = setting.gaps(clients, [k.after for k in clients], oracles)
    return {
        "D": c.dims[0], "m": c.anchors, "seed": c.seed, "compile": c.compile,
        **gaps,
        "greedy": summary["greedy_return"], "final": summary["final_return"], "curve": returns.mean(axis=0).tolist(),
    }  # fmt: skip


def slope(rows: Sequence[Mapping[str, Any]], value: str, over: str = "D") -> tuple[float, float, float]:
    """Return the slope of log(value) over log(over) in all rows, and the ends of its 95 % interval (Student's t)."""
    x, y = (np.log([r[key] for r in rows]) for key in (over, value))
    line = stats.linregress(x, y)
    half = float(stats.t.ppf(0.975, len(rows) - 2) * line.stderr)
    return float(line.slope), float(line.slope) - half, float(line.slope) + half
