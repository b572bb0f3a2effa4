"""Returns of honest clients among liars, some of whom know the rule, on CartPole: what each rule withstands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fedqhd.federation import ATTACKS, RULES
from fedqhd.federation.wrappers.adaptive import CLAIMING
from fedqhd.studies.catalogue.attacks import BASE, LAST, honest_outcome
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.study import Row, Rows, Study, command, finished

GOALS = {(0, 5): 1.0, (2, 5): 0.8, (1, 5): 0.95, (0, 20): 1.0, (4, 20): 0.95}
"""The groups (liars, clients), in the order in which they run, and the share of the clean return that a rule is meant
to keep. Clean is `mean` without liars, on the same seeds."""
FIRST = ("played", "auto")
"""The rules that run first, one after the other; all others come when these are done."""
CLEAN_SEEDS = range(1, 21)
"""The seeds of `mean` and `played` without liars among five clients. Their difference is small, so it takes many.
Seed 0 is not reported, because earlier versions of the rule `played` were changed after a look at it."""


class Case(NamedTuple):
    """The values that identify a run."""

    attack: str
    lying: int
    clients: int
    aggregate: str
    seed: int

    @property
    def rank(self) -> tuple[Any, ...]:
        """The place of the run among all runs."""
        early = "played" if not self.lying and self.aggregate == "mean" else self.aggregate
        group = list(GOALS).index((self.lying, self.clients))
        attacks = ("none", *ATTACKS)
        rule = [*FIRST, *RULES].index(self.aggregate)
        turn = [*FIRST, early].index(early)
        return turn, self.clients, self.seed, group, attacks.index(self.attack), rule


class Liars(Study):
    """A row for each attack, number of liars, aggregation rule and seed."""

    name = "liars"
    rank = 15
    about = "liars that know the rule: every attack against every rule, 1 or 2 of 5 or 4 of 20 clients lying"
    hours = 4.0
    seeds = (1, 2, 3, 4, 5)
    key = Case._fields

    def job(self, plan: Plan, case: Case) -> Job:
        """Return one run."""
        lying = {"attack": case.attack, "liars": case.lying / case.clients} if case.lying else {}
        weighted = {"weights": "steps"} if case.attack in CLAIMING else {}
        settings = {**BASE, "clients": case.clients, **lying, **weighted, "aggregate": case.aggregate, **plan.overrides}
        group = f"{case.attack}-{case.lying}-of-{case.clients}"
        name = f"{case.attack} {case.lying} of {case.clients}, {case.aggregate}, seed {case.seed}"
        return plan.job(f"{self.name}/{group}-{case.aggregate}", settings, case.seed, name, f"{case.clients} clients")

    def cases(self, seeds: Sequence[int] | None) -> list[Case]:
        """Return all cases with these seeds, or with those of the study, in the order in which they run."""
        found = []
        for (lying, clients), rule in ((group, rule) for group in GOALS for rule in RULES):
            many = (lying, clients) == (0, 5) and rule in ("mean", "played")
            own = CLEAN_SEEDS if many else self.seeds
            for attack in ATTACKS if lying else ("none",):
                found += [Case(attack, lying, clients, rule, seed) for seed in (own if seeds is None else seeds)]
        return sorted(found, key=lambda case: case.rank)

    def jobs(self, plan: Plan) -> list[Job]:
        return [self.job(plan, case) for case in self.cases(plan.seeds)]

    def rows(self, plan: Plan) -> list[Row]:
        cases = dict.fromkeys([*self.cases(plan.seeds), *self.cases(None)])
        found = ((case, finished([self.job(plan, case)])) for case in cases)
        return [{**case._asdict(), **honest_outcome(runs[0])} for case, runs in found if runs]

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        return 1  # each seed has its own row

    def order(self, row: Mapping[str, Any]) -> Any:
        return Case(*(row[k] for k in self.key)).rank

    def table(self, rows: Rows) -> list[str]:
        found: dict[tuple[int, int, str, str], dict[int, float]] = {}
        for r in rows:
            found.setdefault((r["lying"], r["clients"], r["attack"], r["aggregate"]), {})[r["seed"]] = r["return"]
        rules = [*FIRST, *(rule for rule in RULES if rule not in FIRST)]
        lines = [
            "# Liars that know the rule",
            "",
            "Made by `fedqhd reproduce liars`: CartPole, clients with different encoders (D from 100 to 300), 300",
            "anchors that follow the teacher, 120 episodes. Each cell is the training return of the honest clients",
            f"over the last {LAST} episodes, as a share of what `mean` reaches on the same seeds without liars; then",
            "the lowest share of a single seed, and the number of seeds. **Bold**: the mean share reaches the goal.",
            "With `claimed-weight`, replies are weighted by the steps that clients claim.",
        ]
        for (lying, clients), goal in GOALS.items():
            clean = found.get((0, clients, "none", "mean"), {})
            cells = {(a, rule): seeds for (*g, a, rule), seeds in found.items() if g == [lying, clients]}
            if not cells or not clean:
                continue
            about = f"goal {goal:.0%}" if lying else f"`mean` returns {np.mean(list(clean.values())):.1f}"
            lines += ["", f"## {lying} of {clients} clients lie ({about})", ""]
            lines += [] if lying else cost(cells.get(("none", "played"), {}), clean)
            lines += ["| attack | " + " | ".join(rules) + " |", "|---|" + "---:|" * len(rules)]
            for attack in [a for a in ("none", *ATTACKS) if any(a == b for b, _ in cells)]:
                row = [share_of(cells.get((attack, rule), {}), clean, goal) for rule in rules]
                lines.append(f"| {attack} | " + " | ".join(row) + " |")
        made_at = ", ".join(f"`{c}`" for c in sorted({r["commit"] for r in rows}))
        one = f"{command({**BASE, 'clients': 5})} --attack ATTACK --liars 0.4 --aggregate played --seed SEED"
        return [*lines, "", f"Commit {made_at}. A run by itself:", "", "```", one, "```"]


def cost(returns: Mapping[int, float], clean: Mapping[int, float]) -> list[str]:
    """Return the lines that say what `played` costs without liars; none if fewer than two seeds have both."""
    both = sorted(returns.keys() & clean.keys())
    if len(both) < 2:
        return []
    d = np.array([returns[s] - clean[s] for s in both])
    half = float(stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d)))
    return [
        f"`played` less `mean`, paired over {len(d)} seeds: {d.mean():+.1f}, with a 95 % interval from "
        f"{d.mean() - half:+.1f} to {d.mean() + half:+.1f}; the median",
        f"difference is {np.median(d):+.1f}.",
        "",
    ]


def share_of(returns: Mapping[int, float], clean: Mapping[int, float], goal: float) -> str:
    """Return the cell of a table: the mean share of the clean return, the lowest one, and the number of seeds."""
    both = sorted(returns.keys() & clean.keys())
    if not both:
        return "–"
    mean = sum(returns[s] for s in both) / sum(clean[s] for s in both)
    lowest = min(returns[s] / clean[s] for s in both)
    text = f"**{mean:.1%}**" if mean >= goal else f"{mean:.1%}"
    return f"{text} (≥ {lowest:.0%}, {len(both)})"
