"""Advice before training: are the anchors enough, where should they be, and which ridge goes with them?

It needs a teacher, since values decide what must be expressed: that of a finished run, or of a short pilot. Anchor
sources are compared by the error of compiled values on states that clients will meet and no anchor is; the number of
anchors follows from the effective rank of a large pool of them, and lam from the leave-one-out error, by one SVD for
the whole path.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder
from fedqhd.encoders.settings import dimension, encoder_of, real_features
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.public import fit_states, scaler_of
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap.measure import check_gap
from fedqhd.gap.states import policy_states, sample
from fedqhd.linalg.geometry import Spectrum
from fedqhd.linalg.ridge import stacked
from fedqhd.runs import exchange
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

SOURCES = ("rollout", "uniform", "mix", "teacher")
LADDER = (250, 500, 1000, 2000, 4000)
POOL = 2000
"""Anchors with which sources are compared, and which show how many directions matter."""
LAMBDAS = np.geomspace(1e-6, 1e2, 33)
ENOUGH = 4.0
"""Anchors for each direction that they are to determine: noise in them then adds about a quarter to an error."""
HELD_OUT = 1000
PILOT_CLIENTS, PILOT_EPISODES, PILOT_D = 2, 60, 500


class Teacher(NamedTuple):
    """Values wanted, at raw states, since it may scale them in its own way; and the policies that go with them."""

    q: Callable[[Array], Array]
    policies: list[Policy]
    about: str


class Choice(NamedTuple):
    """Anchors and a ridge, and what they give the clients: effective ranks, and errors relative to the teacher's
    spread (1: nothing is known)."""

    anchors: int
    source: str
    lam: float
    effective_rank: tuple[float, ...]
    loo_error: float
    held_out_error: float

    @property
    def enough(self) -> bool:
        return self.anchors >= ENOUGH * max(self.effective_rank)


def pilot(c: Config) -> Teacher:
    """A short run of two least-squares clients with one encoder: soon good enough to show where values bend."""
    shared = ["env", "encoder", "sigma", "scaling", "scale_low", "scale_high", "rollout_steps", "gamma", "seed"]
    own = {k: c.values[k] for k in shared}
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "setting": "homogeneous", "learner": "least-squares", "clients": PILOT_CLIENTS, "dims": [PILOT_D],
            "episodes": PILOT_EPISODES, "eval_episodes": 1,
            "epsilon_decay": 0.93, "out": str(Path(folder) / "pilot"),
        }  # fmt: skip
        summary = train(resolve(settings, preset="plain", shared=own))
        policy = load_policy(settings["out"])
    about = f"a pilot of {PILOT_EPISODES} episodes, last returns {summary['final_return']:.1f}"
    return Teacher(policy.q, [policy], about)


def of_run(run: str | Path) -> Teacher:
    """The teacher of a finished run: of its last exchange, or, where W was averaged, the model that all have."""
    if exchange.path_of(run).exists():
        ex = exchange.load(run)
        policies = [load_policy(run, i) for i in range(len(ex.before))]
        return Teacher(lambda s: ex.teacher(policies[0].scaler(s)), policies, f"the teacher of {run}")
    policy = load_policy(run)
    return Teacher(policy.q, [policy], f"client 0 of {run}")


def kinds(c: Config) -> range:
    """Clients whose encoders differ."""
    return range(c.clients if c.setting == "heterogeneous" else 1)


def check(c: Config, teacher: Teacher | None) -> None:
    """Refuse, before a pilot is trained, what has no anchors, another environment, or would not fit."""
    if "compile" not in c:
        raise FedQHDError(
            f"method={c.method} with setting={c.setting} compiles nothing at anchors: advice is for method=fedqhd with "
            "setting=heterogeneous"
        )
    if teacher and teacher.policies[0].env != c.env:
        raise FedQHDError(f"env={c.env!r} is not that of the run whose teacher is asked, {teacher.policies[0].env!r}")
    check_gap(max(*LADDER, c.anchors), max(real_features(c, dimension(c, i)) for i in kinds(c)))


class Bench:
    """The clients of a setting, on which choices of anchors are tried."""

    def __init__(self, c: Config, teacher: Teacher) -> None:
        self.c, self.teacher = c, teacher
        env = make_env(c.env, repeat=c.action_repeat)
        self.scaler: StateScaler = scaler_of(c, env)
        states = fit_states(c, env, self.scaler)
        env.close()
        self.encoders: list[BaseEncoder] = [encoder_of(c, i, states) for i in kinds(c)]
        held = sample(self.scaler, teacher.policies, HELD_OUT, rng.generator(c.seed, rng.PUBLIC, "advise"))
        self.held = np.vstack([held["rollouts"], held["policy"]])
        self.wanted = self.values(self.held)
        self.spread = float(np.sqrt(np.mean((self.wanted - self.wanted.mean(axis=0)) ** 2)))

    def values(self, Z: Array) -> Array:
        """The teacher's, at states scaled as the setting has it."""
        return np.asarray(self.teacher.q(self.scaler.raw(Z)), np.float64)

    def anchors(self, source: str, m: int) -> Array:
        """Scaled. A source that follows a policy is half random rollouts, half states which the teacher's meets."""
        own = rng.generator(self.c.seed, rng.PUBLIC, "advise anchors")
        env = make_env(self.c.env, repeat=self.c.action_repeat)
        followed = m // 2 if source in ("teacher", "visited") else 0
        kind = "rollout" if followed else source
        states = make_anchors(kind, m - followed, self.c.anchor_file, env, self.scaler, own, self.c.rollout_steps)
        env.close()
        if followed:
            met = policy_states(self.teacher.policies, 2 * followed, own)
            states = np.vstack([states, self.scaler(own.permutation(met)[:followed])])
        return states

    def try_out(self, source: str, m: int, lam: float | None = None) -> Choice:
        """Compile the teacher into each client from 0, by the given lam or that of least leave-one-out error."""
        states = self.anchors(source, m)
        Q = self.values(states)
        fits = [Spectrum(np.asarray(stacked(e(states)), np.float64)) for e in self.encoders]
        if lam is None:
            path = np.mean([f.leave_one_out(Q, LAMBDAS) ** 2 for f in fits], axis=0)
            lam = float(LAMBDAS[path.argmin()])
        loo = np.sqrt(np.mean([f.leave_one_out(Q, np.array([lam])) ** 2 for f in fits]))
        errors = [
            np.mean((stacked(e(self.held)) @ f.solve(Q, lam) - self.wanted) ** 2)
            for e, f in zip(self.encoders, fits, strict=True)
        ]
        return Choice(
            len(states), source, lam, tuple(f.effective_rank(lam) for f in fits), float(loo) / self.spread,
            float(np.sqrt(np.mean(errors))) / self.spread,
        )  # fmt: skip


def advise(c: Config, teacher: Teacher | None = None) -> dict[str, Any]:
    """What the given setting would do, and what would do better."""
    check(c, teacher)
    with threadpool_limits(1):
        teacher = teacher or pilot(c)
        bench = Bench(c, teacher)
        given = bench.try_out(c.anchor_source, c.anchors, c.lam)
        compared = [bench.try_out(source, POOL) for source in SOURCES]
        best = min(compared, key=lambda choice: choice.held_out_error)
        need = ENOUGH * max(best.effective_rank)
        advised = bench.try_out(best.source, next((m for m in LADDER if m >= need), LADDER[-1]))
    return {
        "env": c.env, "dims": [e.D for e in bench.encoders], "sigma": c.sigma, "teacher": teacher.about,
        "given": given._asdict(), "well_conditioned": well(given, advised), "reason": reason(given, advised),
        "compared": [x._asdict() for x in compared], "advised": advised._asdict(),
    }  # fmt: skip


def well(given: Choice, advised: Choice) -> bool:
    return given.enough and given.held_out_error <= 2 * advised.held_out_error


def reason(given: Choice, advised: Choice) -> str:
    """Why the given setting is, or is not, well conditioned."""
    most = max(given.effective_rank)
    if well(given, advised):
        return f"{given.anchors} anchors for an effective rank of up to {most:.0f}, and an error near the least found"
    found = []
    if not given.enough:
        few = f"{given.anchors} anchors are to determine up to {most:.0f} directions: fewer than {ENOUGH:g} for each"
        found.append(few)
    if given.held_out_error > 2 * max(advised.held_out_error, given.loo_error):
        found.append("values fit where the anchors are and not where clients will be")
    return "; ".join(found) or "the ridge does not suit these values"


def flags(choice: dict[str, Any]) -> str:
    """The choice as arguments of `fedqhd train`."""
    c = Choice(**choice)
    return f"--anchors {c.anchors} --anchor-source {c.source} --lam {c.lam:.3g}"
