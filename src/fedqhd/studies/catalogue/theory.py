"""The paper's claims about the gap, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from fedqhd.core.blas import single_threaded
from fedqhd.gap.reference import GRIDS
from fedqhd.runs.commit import commit
from fedqhd.studies import theory_claims as claims
from fedqhd.studies.catalogue.ablation_dim import AblationDim
from fedqhd.studies.catalogue.exchange_error import exchange_job
from fedqhd.studies.markdown import commits_of, markdown, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Row, Rows, Run, Study, finished

SEEDS = range(5)
SIZES = ((64, 32, 1e-6), (64, 64, 1e-6), (64, 256, 1e-6), (64, 1024, 1e-6), (64, 1024, 1e-2), (256, 128, 1e-6),
         (256, 1024, 1e-6), (256, 1024, 1e-2))  # fmt: skip
BOUNDS = [
    *(("CartPole-v1", *size, seed, source) for seed, source, size in product(range(2), ("rollout", "uniform"), SIZES)),
    *(("MountainCar-v0", D, m, lam, 0, "uniform") for D, m, lam in ((64, 256, 1e-6), (64, 32, 1e-6))),
]
SHOWN = ("gap", "I", "II", "III", "corrected", "B1", "B2")
CLIENTS = {"MountainCar-v0": 4, "CartPole-v1": 0}
"""The client whose policy is checked in place of Q*, by environment."""


def claim_row(claim: str, case: str, values: Mapping[str, Any], seed: int | None = None) -> Row:
    """Return the row of a claim in one case; a seed of None means that nothing is drawn at random."""
    return {"claim": claim, "case": case, "seed": seed, **values}


def computed() -> Iterator[Row]:
    """Yield all rows that need no run."""
    for s in SEEDS:
        yield claim_row("invisibility", "", claims.invisibility(s), s)
        yield claim_row("zero gap", "", claims.zero_gap(s), s)
    for m, s in product((50, 250, 500, 1000, 4000), SEEDS):
        yield claim_row("one client, D=500", f"m={m}", claims.counter_example(s, m), s)
    for source, lam in product(("rollout", "uniform"), (0.0, 1e-2)):
        yield claim_row("term II", f"{source}, lam={lam:g}", claims.amplification(source, lam))
    for env, D, m, lam, seed, source in BOUNDS:
        found = claims.bounds(env, D, m, lam, seed, source)
        yield claim_row("bounds", f"{env}, D={D}, m={m}, lam={lam:g}, {source}", found, seed)
    yield claim_row("angles", "", claims.angles(0), 0)
    for env in GRIDS:
        yield claim_row("reference", env, claims.q_star(env))


class Theory(Study):
    """A row for each claim, case and seed. Two trained policies are checked in the same way as Q* itself."""

    name = "theory"
    rank = 20
    about = "the paper's claims about the gap: bounds, angles, counter-examples and the reference Q*"
    hours = 0.3
    key = ("claim", "case", "seed")
    measures = True

    def jobs(self, plan: Plan) -> list[Job]:
        """Return one run of each of two other studies."""
        widest = AblationDim()
        (variant,) = widest.settings(plan)
        found = [
            exchange_job(plan, "MountainCar-v0", "teacher", 0),
            widest.job(plan, variant, *widest.trained[-1], "warm-start", 0),
        ]
        return [job for job in found if job.config.env in plan.envs]

    def measure(self, run: Run) -> Any:
        env = run.job.config.env
        return claims.check_trained_policy(env, run.job.folder, CLIENTS[env])

    def rows(self, plan: Plan) -> list[Row]:
        runs = [(r.job.config.env, r.measured(self.name)) for r in finished(self.jobs(plan))]
        trained = [claim_row("trained in its place", env, found) for env, found in runs if found is not None]
        with single_threaded():
            return [{**row, "commit": commit()} for row in (*computed(), *trained)]

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # each seed has its own row

    def table(self, rows: Rows) -> list[str]:
        """Return the table of bounds beside the gap. The other claims are discussed in docs/theory.md."""
        body = [
            [f"{r['case']}, seed {r['seed']}", *(f"{r[k]:.3g}" for k in SHOWN), "yes" if r["valid"] else "no"]
            for r in select(rows, claim="bounds")
        ]  # fmt: skip
        return [
            "# The bound beside the gap",
            "",
            f"Made by `fedqhd reproduce theory`, commit `{commits_of(rows)}`. Three clients with their oracle "
            "projections of Q\\*",
            "exchange once. *Gap*: the largest one of the first client. *I* to *III*: the terms of the paper's bound.",
            "*Corrected*: our bound. *B1*: the part of the gap that the anchors do not see or the ridge shrinks; *B2*:",
            "the part that leaks in from outside the client's span. *Valid*: the condition of the bound holds. All",
            "claims are in theory.json and in [docs/theory.md](../docs/theory.md).",
            "",
            *markdown(["", *SHOWN, "valid"], body),
        ]
