"""Why clients with different encoders may do no better together than alone.

The same clients are trained with anchors from random rollouts, with anchors that follow the teacher, and independently.
For federated clients, the distance from the teacher is measured as `fedqhd gap` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.gap.measure import measure_gap
from fedqhd.runs import exchange
from fedqhd.studies.markdown import commits_of, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Row, Rows, Run, Study, command, finished

COMMON: dict[str, dict[str, Any]] = {
    "MountainCar-v0": {"episodes": 200},
    "LunarLander-v3": {"episodes": 120, "clients": 3, "dims": [500, 800, 1000]},
}
CELLS = {
    "rollout": {"anchor_source": "rollout"},
    "teacher": {"anchor_source": "teacher"},
    "alone": {"method": "independent-qhd"},
}
HEADER = """# What an exchange does where policies go

Made by `fedqhd reproduce exchange-error`, commit `{commit}`: clients with different encoders, {learner}.
*Distance*: root mean square difference from the teacher, median of all clients and seeds, before and after the last
exchange. *Other compile*: what it would be after an exchange with `--compile overwrite`. *Changed*: states in which the
greedy action is not the teacher's. Returns are means of seeds; each seed and client is in exchange-error.json.

| | seeds | final return | greedy | effective rank | on rollouts | where policies go | other compile | changed |
|---|---:|---:|---:|---:|---|---|---:|---:|"""


def settings(env: str, cell: str) -> dict[str, Any]:
    """Return the settings of a cell; `cell` is a key of CELLS."""
    return {"env": env, "setting": "heterogeneous", "learner": "least-squares", **COMMON[env], **CELLS[cell]}


def exchange_job(plan: Plan, env: str, cell: str, seed: int) -> Job:
    """Return one run; `cell` is a key of CELLS."""
    used = {**settings(env, cell), **plan.overrides}
    return plan.job(f"exchange-error/{env}-{cell}", used, seed, f"{env} {cell}, seed {seed}")


class ExchangeError(Study):
    """A row for each environment, source of anchors and seed."""

    name = "exchange-error"
    rank = 19
    about = "how near an exchange brings clients to the teacher where policies go, by the source of the anchors"
    hours = 0.2
    seeds = (0,)
    key = ("env", "cell", "seed")
    measures = True

    def combinations(self, plan: Plan, seeds: Sequence[int]) -> list[tuple[str, str, int]]:
        """Return all combinations of environment, cell and seed that the plan includes."""
        return [(env, cell, seed) for env, seed, cell in product(COMMON, seeds, CELLS) if env in plan.envs]

    def jobs(self, plan: Plan) -> list[Job]:
        return [exchange_job(plan, *case) for case in self.combinations(plan, plan.seeds or self.seeds)]

    def measure(self, run: Run) -> Any:
        """Return the distances of all clients from the teacher, by source of states; empty for independent clients."""
        if not exchange.path_of(run.job.folder).exists():
            return {}
        clients = measure_gap(run.job.folder, episodes=5)["clients"]
        found = {"effective_rank": [round(c["effective_rank"], 1) for c in clients]}
        for where, when in product(
            ("rollouts", "policy"), ("before", "after", "other_compile", "greedy_changed", "misfit", "held_back")
        ):
            found[f"{where}, {when}"] = [float(f"{c['errors'][where][when]:.3g}") for c in clients]
        return found

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for env, cell, seed in self.combinations(plan, sorted({*(plan.seeds or ()), *self.seeds})):
            for run in finished([exchange_job(plan, env, cell, seed)]):
                if (found := run.measured(self.name)) is None:
                    continue
                used = {**settings(env, cell), **plan.overrides, "seed": seed}
                rows.append({
                    "env": env, "cell": cell, "seed": seed, "command": command(used),
                    "final_return": run.summary["final_return"], "greedy_return": run.summary["greedy_return"],
                    **found, "commit": run.summary["commit"],
                })  # fmt: skip
        return rows

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # each seed has its own row

    def table(self, rows: Rows) -> list[str]:
        groups = {(e, c): select(rows, env=e, cell=c) for e, c in product(COMMON, CELLS)}
        lines = [line(*key, group) for key, group in groups.items() if group]
        return [
            HEADER.format(commit=commits_of(rows), learner="`--learner least-squares`"),
            *lines,
            "",
            "```",
            *(r["command"] for r in rows),
            "```",
        ]


def line(env: str, cell: str, rows: Rows) -> str:
    """Return the line of the table for one environment and cell."""

    def middle(key: str) -> str:
        value = np.median([x for r in rows for x in r[key]])
        return f"{value:.0f}" if value >= 100 else f"{value:.2g}"

    shown = [f"{env}, {cell}", str(len(rows))]
    shown += [f"{np.mean([r[k] for r in rows]):.1f}" for k in ("final_return", "greedy_return")]
    if "effective_rank" in rows[0]:
        shown += [middle("effective_rank")]
        shown += [f"{middle(f'{w}, before')} → {middle(f'{w}, after')}" for w in ("rollouts", "policy")]
        shown += [middle("policy, other_compile"), middle("policy, greedy_changed")]
    else:
        shown += ["–"] * 5
    return f"| {' | '.join(shown)} |"
