"""FedQHD with different numbers of clients, with the settings that were tuned for five."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from fedqhd.studies import paper
from fedqhd.studies.markdown import interval_text, markdown, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, Cell, cell_settings, cells, settings
from fedqhd.studies.stats import describe
from fedqhd.studies.study import Row, Rows, Study, column, command, commits, finished

CLIENTS = (1, 2, 5, 20)
SCALED = ("CartPole-v1", "LunarLander-v3")
EPISODES = 500
LAST = 30
"""The number of last episodes over which the return is averaged, as in the paper."""


def scaled(plan: Plan, cell: Cell, clients: int) -> dict[str, Any]:
    """Return the settings of a run with a number of clients."""
    return {**settings("tuned", cell, plan.tuned), "episodes": EPISODES, **plan.overrides, "clients": clients}


def scaled_cells(plan: Plan) -> list[Cell]:
    """Return the cells of the study that the plan includes."""
    return cells(["fedqhd"], [e for e in SCALED if e in plan.envs], plan.settings)


def scalability_job(plan: Plan, cell: Cell, clients: int, seed: int) -> Job:
    """Return one run with a number of clients."""
    name = f"{cell.env} {cell.setting}, N={clients}, seed {seed}"
    return plan.job(f"scalability/{cell.name}", scaled(plan, cell, clients), seed, name, f"N={clients} {cell.name}")


class Scalability(Study):
    """The return over the last 30 episodes by the number of clients."""

    name = "scalability"
    rank = 7
    about = "FedQHD with 1, 2, 5 and 20 clients"
    hours = 1.1
    key = ("env", "setting", "clients")
    in_results = True
    in_all = True

    def jobs(self, plan: Plan) -> list[Job]:
        every = product(plan.seeds or self.seeds, CLIENTS, scaled_cells(plan))
        return [scalability_job(plan, cell, clients, seed) for seed, clients, cell in every]

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        seeds = sorted({*(plan.seeds or ()), *self.seeds})
        for cell, clients in product(scaled_cells(plan), CLIENTS):
            runs = finished(scalability_job(plan, cell, clients, seed) for seed in seeds)
            if not runs:
                continue
            last = [float(np.nanmean(run.returns()[:, -LAST:])) for run in runs]
            solved = paper.figures()["scalability"]["solved_threshold"][cell.env]
            rows.append({
                **cell_settings(cell), "clients": clients, "seeds": len(runs), "episodes": runs[0].summary["episodes"],
                "final_return": describe(last), "greedy_return": describe(column(runs, "greedy_return")),
                "solved": round(float(np.mean(np.array(last) >= solved)), 2),
                "cpu_seconds": round(float(np.mean(column(runs, "cpu_seconds"))), 1),
                "command": command(scaled(plan, cell, clients)), "commit": commits(runs),
            })  # fmt: skip
        return rows

    def table(self, rows: Rows) -> list[str]:
        counts = sorted({r["clients"] for r in rows})
        body = []
        for env, setting in product([e for e in ENVS if select(rows, env=e)], ("homogeneous", "heterogeneous")):
            here = {r["clients"]: r for r in select(rows, env=env, setting=setting)}
            if here:
                theirs = paper.figures()["scalability"]["gain_over_N1_percent"][env]
                values = [self.cell(here.get(n)) for n in counts]
                body.append([f"{env}, {setting}", *values, gain(here, counts), f"+{theirs} %"])
        seeds = sorted({r["seeds"] for r in rows})
        return ["## Scalability", "",
                f"FedQHD as tuned for five clients, by their number: return over the last {LAST} episodes, {seeds[0]} "
                "seeds or more.", "",
                *markdown(["", *(f"N={n}" for n in counts), "gain", "the paper's gain"], body)]  # fmt: skip

    def cell(self, row: Mapping[str, Any] | None) -> str:
        """Return the text of a cell of the table, a dash if there is no row."""
        return self.marked(interval_text(row["final_return"]), row) if row else "–"


def gain(here: Mapping[int, Mapping[str, Any]], counts: list[int]) -> str:
    """Return by how many per cent the largest number of clients is better than the smallest, as text."""
    if not {counts[0], counts[-1]} <= here.keys():
        return "–"
    first, last = (here[n]["final_return"]["iqm"] for n in (counts[0], counts[-1]))
    return f"{100 * (last - first) / abs(first):+.1f} %"
