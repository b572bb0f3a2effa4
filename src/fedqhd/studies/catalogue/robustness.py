"""Robustness: the returns of policies whose weights are damaged.

A share of a hypervector's components is multiplied by 0, by -1, or by 1 + N(0, 1); since Q = Re(Phi^H W), this is the
same as damage to rows of W. Alternatively, W is stored in fewer bits. The weights of a network are damaged one by one
in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy, greedy_returns, load_policy
from fedqhd.core import rng
from fedqhd.core.protocols import Array, Model
from fedqhd.studies.catalogue.main import main_job
from fedqhd.studies.markdown import markdown, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, Cell, seeds
from fedqhd.studies.stats import describe
from fedqhd.studies.study import Row, Rows, Run, Study, commits, finished

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BITS = (32, 8, 4, 2, 1)
AMOUNTS: Mapping[str, Sequence[float]] = {"zeroed": SHARES, "flipped": SHARES[:6], "noised": SHARES, "bits": BITS}
"""The amounts of each kind of damage: shares of components, or bits."""
EPISODES = 10
"""The number of greedy episodes for each return."""


def factors(damage: str, share: float, n: int, generator: np.random.Generator) -> Array:
    """Return the factors by which n components are multiplied, (n,); `damage` is "zeroed", "flipped" or "noised"."""
    hit = generator.permutation(n) < round(share * n)
    by = {"zeroed": np.zeros(n), "flipped": -np.ones(n), "noised": 1.0 + generator.normal(size=n)}[damage]
    return np.where(hit, by, 1.0)


def quantise(w: Array, bits: int) -> Array:
    """Round weights to 2^bits - 1 equidistant values from -max|w| to max|w|.

    One bit keeps the sign, times the mean magnitude. With 32 bits or more, weights are returned unchanged. Real and
    imaginary parts are rounded separately.
    """
    if bits >= 32:
        return w
    if np.iscomplexobj(w):
        return quantise(w.real, bits) + 1j * quantise(w.imag, bits)
    if bits == 1:
        return np.where(w < 0, -1.0, 1.0) * np.abs(w).mean()
    levels = 2 ** (bits - 1) - 1
    step = np.abs(w).max() / levels
    return np.round(w / step) * step if step > 0 else w


def damaged(model: Model, damage: str, amount: float, generator: np.random.Generator) -> Model:
    """Return a damaged copy of a model.

    Args:
        model: A readout, whose components are the rows of W, or a network, whose components are its weights.
        damage: A kind of damage, a key of AMOUNTS.
        amount: The share of components that are damaged, or the number of bits.
        generator: Draws the components that are damaged.

    Raises:
        TypeError: If the model is of another kind.
    """

    def treat(w: Array, components: tuple[int, ...]) -> Array:
        if damage == "bits":
            return quantise(w, int(amount)).astype(w.dtype)
        by = factors(damage, amount, int(np.prod(components)), generator)
        return (w * by.reshape(components)).astype(w.dtype)

    if isinstance(model, Readout):
        return Readout(model.encoder, treat(model.W, (len(model.W), 1)))
    if isinstance(model, MLP):
        return MLP([(treat(w, w.shape).T, b) for w, b in model.layers])
    raise TypeError(f"model={type(model).__name__} cannot be damaged: a readout or a network is needed")


def damaged_return(policy: Policy, damage: str, amount: float, seed: int, episodes: int = EPISODES) -> float:
    """Return the mean greedy return of a damaged policy; the seed determines episodes and damaged components."""
    generator = rng.generator(seed, rng.PUBLIC, f"damage-{damage}")
    worse = Policy(
        damaged(policy.model, damage, amount, generator), policy.scaler, policy.env, 0.0, policy.action_repeat
    )
    env = worse.make_env()
    value = float(greedy_returns(worse, env, episodes, seed, 0).mean())
    env.close()
    return value


DAMAGED = {
    "fedqhd": ("tuned", "fedqhd"),
    "fedqhd, as in the paper": ("paper", "fedqhd"),
    "dqn": ("tuned", "fedavg-dqn"),
}
"""The preset and method of the policies that are damaged, all with one encoder or network for all clients. In the
paper's settings, the readout is a sum of features with D = 10,000; as tuned, it is a least-squares solution with fewer
features."""
SEEDS = 5
"""The largest number of seeds."""
SHOWN = [("zeroed", 0.1), ("zeroed", 0.3), ("zeroed", 0.6), ("zeroed", 0.9), ("flipped", 0.1), ("flipped", 0.4),
         ("noised", 0.1), ("noised", 0.5), ("noised", 0.9), *(("bits", k) for k in (8, 4, 2, 1))]  # fmt: skip


def seeds_of(env: str, model: str) -> Sequence[int]:
    """Return the seeds whose policies are damaged; `model` is a key of DAMAGED."""
    preset, method = DAMAGED[model]
    return seeds(preset, Cell(method, env, "homogeneous"))[:SEEDS]


def damaged_jobs(plan: Plan, env: str, model: str, chosen: Sequence[int]) -> list[Job]:
    """Return the runs of the main table whose policies are damaged."""
    preset, method = DAMAGED[model]
    return [main_job(plan, preset, Cell(method, env, "homogeneous"), seed) for seed in chosen]


class Robustness(Study):
    """Greedy returns of damaged policies, for the first client of each seed."""

    name = "robustness"
    rank = 8
    about = "policies of the main table with damaged hypervectors and fewer bits, beside a DQN's"
    runs_from = "main"
    key = ("env", "model", "damage", "amount")
    measures = True
    in_results = True
    in_all = True

    def jobs(self, plan: Plan) -> list[Job]:
        models = [model for model, (preset, _) in DAMAGED.items() if preset in plan.presets]
        every = ((env, model, plan.seeds or seeds_of(env, model)) for env, model in product(plan.envs, models))
        jobs = (job for wanted in every for job in damaged_jobs(plan, *wanted))
        return sorted(jobs, key=lambda job: job.config.seed)

    def measure(self, run: Run) -> Any:
        """Return the greedy return of the first client's policy for each kind and amount of damage."""
        policy = load_policy(run.job.folder)
        return [
            {"damage": damage, "amount": amount, "greedy_return": damaged_return(policy, damage, amount, run.seed)}
            for damage, amounts in AMOUNTS.items() for amount in amounts
        ]  # fmt: skip

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for env, (model, (preset, method)) in product([e for e in ENVS if e in plan.envs], DAMAGED.items()):
            chosen = sorted({*(plan.seeds or ()), *seeds_of(env, model)})
            runs = [r for r in finished(damaged_jobs(plan, env, model, chosen)) if r.measured(self.name) is not None]
            for same in zip(*(run.measured(self.name) for run in runs), strict=True):
                rows.append({"env": env, "model": model, "preset": preset, "method": method, "seeds": len(same),
                             "damage": same[0]["damage"], "amount": same[0]["amount"],
                             "greedy_return": describe([r["greedy_return"] for r in same]),
                             "commit": commits(runs)})  # fmt: skip
        return rows

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return len(seeds_of(row["env"], row["model"]))

    def table(self, rows: Rows) -> list[str]:
        body = []
        for env, model in product([e for e in ENVS if select(rows, env=e)], DAMAGED):
            group = select(rows, env=env, model=model)
            here = {(r["damage"], r["amount"]): r["greedy_return"]["iqm"] for r in group}
            if here:
                values = [f"{here[key]:.1f}" if key in here else "–" for key in (("zeroed", 0.0), *SHOWN)]
                body.append([self.marked(f"{env}, {model}", min(group, key=lambda r: r["seeds"])), *values])
        heads = [f"{d} {a:.0%}" if d != "bits" else f"{a} bit{'s' * (a > 1)}" for d, a in SHOWN]
        return ["## Robustness of the representation", "",
                "Greedy return (interquartile mean over seeds) of a client of FedQHD when a share of its hypervector's",
                "components is multiplied by 0, by −1, or by 1 + N(0, 1), and when W is kept in few bits; as tuned "
                "and,",
                "where that was run, in the paper's settings; beside a FedAvg-DQN's whose weights are treated alike. "
                "One",
                "encoder or network for all.", "",
                *markdown(["", "intact", *heads], body)]  # fmt: skip
