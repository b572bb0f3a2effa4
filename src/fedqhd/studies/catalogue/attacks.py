"""Returns of honest clients under attack, by aggregation rule and share of liars, on CartPole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedqhd.federation import FIXED
from fedqhd.federation import RULES as EVERY_RULE
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Row, Rows, Run, Study, command, finished

BASE = {
    "env": "CartPole-v1", "setting": "heterogeneous", "learner": "least-squares", "dims": [100, 150, 200, 250, 300],
    "anchors": 300, "episodes": 120, "eval_episodes": 5,
}  # fmt: skip
LAST = 50
"""The number of last episodes over which returns are averaged."""
HELD = 0.95
"""The share of the return without attacks from which on a rule counts as robust."""
RULES = [name for name, rule in EVERY_RULE.items() if not rule.plays]
"""The rules that need no environment; the study `liars` compares them with those that do."""
CELLS = [("none", 0.0), *((attack, share) for share in (0.2, 0.4) for attack in FIXED)]


def honest_outcome(run: Run) -> Row:
    """Return what the honest clients of a run reached, and whose replies were left out."""
    liars = run.summary.get("liars", [])
    honest = [i for i in range(run.summary["clients"]) if i not in liars]
    return {
        "return": round(float(run.returns()[honest, -LAST:].mean()), 1),
        "greedy_return": round(float(np.mean([run.summary["greedy_return_per_client"][i] for i in honest])), 1),
        "cpu_seconds": round(run.summary["cpu_seconds"], 1), "liars": liars,
        "left_out": run.summary["replies"]["left out"], "commit": run.summary["commit"],
    }  # fmt: skip


class Attacks(Study):
    """A row for each attack, share of liars, aggregation rule and seed."""

    name = "attacks"
    rank = 15
    about = "attacks against every rule of aggregation, with none, 20 % and 40 % of the clients lying"
    hours = 0.5
    key = ("attack", "share", "aggregate", "seed")

    def job(self, plan: Plan, attack: str, share: float, aggregate: str, seed: int) -> Job:
        """Return one run."""
        lying = {"attack": attack, "liars": share} if share else {}
        settings = {**BASE, **lying, "aggregate": aggregate, **plan.overrides}
        name = f"{attack} {share:.0%}, {aggregate}, seed {seed}"
        return plan.job(f"{self.name}/{attack}-{share}-{aggregate}", settings, seed, name, self.name)

    def combinations(self, seeds: Sequence[int]) -> list[tuple[str, float, str, int]]:
        """Return all combinations of attack, share of liars, rule and seed."""
        return [(*cell, rule, seed) for seed, cell, rule in product(seeds, CELLS, RULES)]

    def jobs(self, plan: Plan) -> list[Job]:
        return [self.job(plan, *case) for case in self.combinations(plan.seeds or self.seeds)]

    def rows(self, plan: Plan) -> list[Row]:
        seeds = sorted({*(plan.seeds or ()), *self.seeds})
        found = ((case, finished([self.job(plan, *case)])) for case in self.combinations(seeds))
        return [{**dict(zip(self.key, case, strict=True)), **honest_outcome(runs[0])} for case, runs in found if runs]

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # each seed has its own row

    def order(self, row: Mapping[str, Any]) -> Any:
        return row["seed"], CELLS.index((row["attack"], row["share"])), RULES.index(row["aggregate"])

    def table(self, rows: Rows) -> list[str]:
        found: dict[tuple[str, float, str], dict[int, float]] = {}
        for r in rows:
            found.setdefault((r["attack"], r["share"], r["aggregate"]), {})[r["seed"]] = r["return"]
        honest = found.get(("none", 0.0, "mean"), {})
        clean = np.mean(list(honest.values())) if honest else np.nan
        lines = [
            "# Attacks and aggregation",
            "",
            "Made by `fedqhd reproduce attacks`: CartPole, five clients with different encoders (D from 100 to "
            "300), 300 anchors, 120",
            f"episodes. Return: training, last {LAST} episodes, mean of the honest clients and of the seeds.",
            f"**Bold**: within 5 % of what the mean reaches on the same seeds when nobody lies ({clean:.1f} on all). "
            "In",
            f"brackets: seeds that were run, where it is not {len(self.seeds)}.",
            "",
            "| attack | liars | " + " | ".join(RULES) + " |",
            "|---|---:|" + "---:|" * len(RULES),
        ]
        for attack, share in CELLS:
            cells = []
            for aggregate in RULES:
                seeds = found.get((attack, share, aggregate), {})
                mean = np.mean(list(seeds.values())) if seeds else np.nan
                same = np.mean([honest.get(seed, np.nan) for seed in seeds]) if seeds else np.nan
                text = f"**{mean:.1f}**" if mean >= HELD * same else f"{mean:.1f}" if seeds else "–"
                few = f" ({len(seeds)} of {len(self.seeds)} seeds)" if 0 < len(seeds) < len(self.seeds) else ""
                cells.append(text + few)
            lines.append(f"| {attack} | {share:.0%} | " + " | ".join(cells) + " |")
        made_at = ", ".join(f"`{c}`" for c in sorted({r["commit"] for r in rows}))
        one = f"{command(BASE)} --attack ATTACK --liars 0.2 --aggregate AGGREGATOR --seed SEED"
        return [*lines, "", f"Commit {made_at}. A run by itself:", "", "```", one, "```"]
