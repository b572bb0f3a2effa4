"""Advice before training: how many anchors to use, where to take them from, and which ridge to use with them.

Advice needs a teacher, because anchors must suit the values to be compiled: that of a finished run, or of a short
pilot. Sources of anchors are compared by the error of compiled values on held-out states that clients will visit. The
number of anchors follows from the effective rank of a large pool of them, and lam from the leave-one-out error, which
one SVD gives for all candidates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core import rng
from fedqhd.core.blas import single_threaded
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder
from fedqhd.encoders.settings import dimension, encoder_of, real_features
from fedqhd.envs.adapt import grid_of
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.public import fit_states, scaler_of
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap.measure import check_memory
from fedqhd.gap.states import policy_states, sample
from fedqhd.linalg.geometry import Spectrum
from fedqhd.linalg.ridge import stacked
from fedqhd.runs import exchange
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

SOURCES = ("rollout", "uniform", "mix", "teacher")
"""The sources of anchors that are compared."""
LADDER = (250, 500, 1000, 2000, 4000)
"""The numbers of anchors that can be advised."""
POOL = 2000
"""The number of anchors with which sources are compared and effective ranks are measured."""
LAMBDAS = np.geomspace(1e-6, 1e2, 33)
ANCHORS_PER_DIRECTION = 4.0
"""Anchors needed for each direction of the effective rank, so that noise adds only about a quarter to the error."""
HELD_OUT = 1000
PILOT_CLIENTS, PILOT_EPISODES, PILOT_D = 2, 60, 500


class Teacher(NamedTuple):
    """The values to be compiled, and the policies that follow them.

    `q` takes raw states (n, variables), because a teacher may scale states differently from the configuration, and
    returns values (n, A). `about` describes the teacher to the user.
    """

    q: Callable[[Array], Array]
    policies: list[Policy]
    about: str


class Choice(NamedTuple):
    """A number and a source of anchors, a ridge, and how well clients compile the teacher with them.

    `effective_rank` has one entry for each distinct encoder. Errors are relative to the spread of the teacher's values:
    an error of 1 means that the compiled values say nothing about the teacher's.
    """

    anchors: int
    source: str
    lam: float
    effective_rank: tuple[float, ...]
    loo_error: float
    held_out_error: float

    @property
    def has_enough_anchors(self) -> bool:
        """Whether there are ANCHORS_PER_DIRECTION anchors for each direction of every encoder."""
        return self.anchors >= ANCHORS_PER_DIRECTION * max(self.effective_rank)


def pilot(c: Config) -> Teacher:
    """Train two least-squares clients with one encoder for a few episodes and return their model as the teacher."""
    shared = ["env", "encoder", "sigma", "scaling", "scale_low", "scale_high", "rollout_steps", "gamma", "seed"]
    common = {k: c.values[k] for k in shared}
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "setting": "homogeneous", "learner": "least-squares", "clients": PILOT_CLIENTS, "dims": [PILOT_D],
            "episodes": PILOT_EPISODES, "eval_episodes": 1,
            "epsilon_decay": 0.93, "out": str(Path(folder) / "pilot"),
        }  # fmt: skip
        summary = train(resolve(settings, preset="plain", shared=common))
        policy = load_policy(settings["out"])
    about = f"a pilot of {PILOT_EPISODES} episodes, last returns {summary['final_return']:.1f}"
    return Teacher(policy.q, [policy], about)


def teacher_of_run(run: str | Path) -> Teacher:
    """Return the teacher of the last exchange of a run, or the model that all clients share if W was averaged."""
    if exchange.path_of(run).exists():
        ex = exchange.load(run)
        policies = [load_policy(run, i) for i in range(len(ex.before))]
        return Teacher(lambda s: ex.teacher(policies[0].scaler(s)), policies, f"the teacher of {run}")
    policy = load_policy(run)
    return Teacher(policy.q, [policy], f"client 0 of {run}")


def distinct_clients(c: Config) -> range:
    """Return the indices of clients with different encoders: one client is enough if all share an encoder."""
    return range(c.clients if c.setting == "heterogeneous" else 1)


def check(c: Config, teacher: Teacher | None) -> None:
    """Check that advice is possible, before a pilot is trained.

    Raises:
        FedQHDError: If clients do not compile at anchors, if the teacher belongs to another environment, or if the
            decompositions would not fit into memory.
    """
    if "compile" not in c:
        raise FedQHDError(
            f"method={c.method} with setting={c.setting} compiles nothing at anchors: advice needs method=fedqhd with "
            "setting=heterogeneous"
        )
    if teacher and teacher.policies[0].env != c.env:
        raise FedQHDError(f"env={c.env!r} is not that of the run whose teacher is used, {teacher.policies[0].env!r}")
    check_memory(max(*LADDER, c.anchors), max(real_features(c, dimension(c, i)) for i in distinct_clients(c)))


class Bench:
    """The distinct encoders of a configuration, with which choices of anchors and ridge are evaluated."""

    def __init__(self, c: Config, teacher: Teacher) -> None:
        self.c, self.teacher = c, teacher
        env = make_env(c.env, repeat=c.action_repeat)
        self.scaler: StateScaler = scaler_of(c, env)
        states, grid = fit_states(c, env, self.scaler), grid_of(env)
        env.close()
        self.encoders: list[BaseEncoder] = [encoder_of(c, i, states, grid=grid) for i in distinct_clients(c)]
        held = sample(self.scaler, teacher.policies, HELD_OUT, rng.generator(c.seed, rng.PUBLIC, "advise"))
        self.held_out = np.vstack([held["rollouts"], held["policy"]])
        self.targets = self.values(self.held_out)
        self.spread = float(np.sqrt(np.mean((self.targets - self.targets.mean(axis=0)) ** 2)))

    def values(self, Z: Array) -> Array:
        """Return the teacher's values (n, A) at states that are scaled as the configuration says."""
        return np.asarray(self.teacher.q(self.scaler.raw(Z)), np.float64)

    def anchors(self, source: str, m: int) -> Array:
        """Return m scaled anchors; for "teacher" and "visited", the teacher's policies visit half of them."""
        generator = rng.generator(self.c.seed, rng.PUBLIC, "advise anchors")
        env = make_env(self.c.env, repeat=self.c.action_repeat)
        followed = m // 2 if source in ("teacher", "visited") else 0
        kind = "rollout" if followed else source
        states = make_anchors(kind, m - followed, self.c.anchor_file, env, self.scaler, generator, self.c.rollout_steps)
        env.close()
        if followed:
            met = policy_states(self.teacher.policies, 2 * followed, generator)
            states = np.vstack([states, self.scaler(generator.permutation(met)[:followed])])
        return states

    def try_out(self, source: str, m: int, lam: float | None = None) -> Choice:
        """Compile the teacher into each encoder, starting from zero weights, and measure the errors.

        Args:
            source: Where the anchors come from.
            m: The number of anchors.
            lam: The ridge, or None for the candidate with the least leave-one-out error.
        """
        states = self.anchors(source, m)
        Q = self.values(states)
        fits = [Spectrum(np.asarray(stacked(e(states)), np.float64)) for e in self.encoders]
        if lam is None:
            path = np.mean([f.leave_one_out(Q, LAMBDAS) ** 2 for f in fits], axis=0)
            lam = float(LAMBDAS[path.argmin()])
        loo = np.sqrt(np.mean([f.leave_one_out(Q, np.array([lam])) ** 2 for f in fits]))
        errors = [
            np.mean((stacked(e(self.held_out)) @ f.solve(Q, lam) - self.targets) ** 2)
            for e, f in zip(self.encoders, fits, strict=True)
        ]
        return Choice(
            len(states), source, lam, tuple(f.effective_rank(lam) for f in fits), float(loo) / self.spread,
            float(np.sqrt(np.mean(errors))) / self.spread,
        )  # fmt: skip


def advise(c: Config, teacher: Teacher | None = None) -> dict[str, Any]:
    """Evaluate the anchors and the ridge of a configuration, and look for better ones.

    Args:
        c: The configuration of a run that is to be trained.
        teacher: The values to be compiled, or None to train a pilot for them.

    Returns:
        The evaluation of the given choice and of each source of anchors, the advised choice, and whether and why the
        given one is well conditioned.

    Raises:
        FedQHDError: If advice is not possible for the configuration (see `check`).
    """
    check(c, teacher)
    with single_threaded():
        teacher = teacher or pilot(c)
        bench = Bench(c, teacher)
        given = bench.try_out(c.anchor_source, c.anchors, c.lam)
        compared = [bench.try_out(source, POOL) for source in SOURCES]
        best = min(compared, key=lambda choice: choice.held_out_error)
        need = ANCHORS_PER_DIRECTION * max(best.effective_rank)
        advised = bench.try_out(best.source, next((m for m in LADDER if m >= need), LADDER[-1]))
    return {
        "env": c.env, "dims": [e.D for e in bench.encoders], "sigma": c.sigma, "teacher": teacher.about,
        "given": given._asdict(), "well_conditioned": is_well_conditioned(given, advised),
        "reason": reason(given, advised),
        "compared": [x._asdict() for x in compared], "advised": advised._asdict(),
    }  # fmt: skip


def is_well_conditioned(given: Choice, advised: Choice) -> bool:
    """Return whether a choice has enough anchors and at most twice the held-out error of the advised one."""
    return given.has_enough_anchors and given.held_out_error <= 2 * advised.held_out_error


def reason(given: Choice, advised: Choice) -> str:
    """Return why the given choice is, or is not, well conditioned."""
    most = max(given.effective_rank)
    if is_well_conditioned(given, advised):
        return f"{given.anchors} anchors suffice for an effective rank of {most:.0f}, and the error is near the best"
    found = []
    if not given.has_enough_anchors:
        found.append(
            f"{given.anchors} anchors have to determine up to {most:.0f} directions, which needs "
            f"{ANCHORS_PER_DIRECTION:g} anchors for each"
        )
    if given.held_out_error > 2 * max(advised.held_out_error, given.loo_error):
        found.append("compiled values are accurate at the anchors but not where clients will be")
    return "; ".join(found) or "lam does not suit these values"


def flags(choice: dict[str, Any]) -> str:
    """Return a choice, given as a dictionary of its fields, as arguments of `fedqhd train`."""
    c = Choice(**choice)
    return f"--anchors {c.anchors} --anchor-source {c.source} --lam {c.lam:.3g}"
