"""The costs of the main table's runs: time by part, bytes exchanged, and CPU time until the paper's return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedqhd.agents.loops import SPLIT
from fedqhd.runs.outcome import episodes_to_goal
from fedqhd.runs.rounds_log import cpu_seconds_until
from fedqhd.studies import paper
from fedqhd.studies.catalogue.main import MainCells, main_jobs, runs_of
from fedqhd.studies.main_table import name
from fedqhd.studies.markdown import markdown, select
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import Cell, cell_settings, cells
from fedqhd.studies.study import Row, Rows, Run, commits

CELLS = cells()


def until(cell: Cell, runs: Sequence[Run]) -> Row:
    """Measure how soon runs reach the final return of the paper's FedQHD over their last 100 episodes.

    Returns:
        That return, the median over runs of the CPU seconds until it, and how many runs reached it. A run that did not
        counts with all its CPU seconds.
    """
    published = paper.final_return(paper.FEDQHD, cell.env, cell.setting)
    assert published
    goal, seconds, reached = published["mean"], [], 0
    for run in runs:
        at = episodes_to_goal(run.returns(), goal)
        seconds.append(cpu_seconds_until(run.job.folder, at) if at else run.summary["cpu_seconds"])
        reached += at is not None
    return {"return": goal, "cpu_seconds": round(float(np.median(seconds)), 1), "runs": len(runs), "reached": reached}


class Cost(MainCells):
    """Costs: a row for each cell of the main table, made from the runs of the main table."""

    name = "cost"
    rank = 4
    about = "where the time of the main table's runs went, on three seeds or more, and what travelled"
    runs_from = "main"

    def jobs(self, plan: Plan) -> list[Job]:
        return main_jobs(replace(plan, seeds=plan.seeds or self.seeds))

    def source_jobs(self, plan: Plan) -> list[Job]:
        """Include finished runs of all seeds, although only some seeds are run for this study."""
        return [*self.jobs(plan), *main_jobs(plan.with_all_seeds())]

    def rows(self, plan: Plan) -> list[Row]:
        rows = []
        for preset in plan.presets:
            for cell in plan.cells:
                runs = runs_of(plan, preset, cell)
                if not runs:
                    continue
                summaries = [run.summary for run in runs]
                splits = [dict.fromkeys((*SPLIT, "logging"), 0.0) | s["split_seconds"] for s in summaries]
                split = mean(*splits[0], rows=splits)
                rows.append({
                    "preset": preset, **cell_settings(cell), "seeds": len(runs),
                    **mean("cpu_seconds", "wall_seconds", rows=summaries), "split_seconds": split,
                    **mean("bytes_up_per_round", "bytes_down_per_round", "updates", "env_steps", rows=summaries),
                    "paper_minutes": paper.minutes(*cell), "until": until(cell, runs), "commit": commits(runs),
                })  # fmt: skip
        return rows

    def table(self, rows: Rows) -> list[str]:
        rows = sorted(
            select(rows, preset="tuned"), key=lambda r: CELLS.index(Cell(r["method"], r["env"], r["setting"]))
        )
        shown = [k for k in SPLIT if any(r["split_seconds"].get(k) for r in rows)]
        body = []
        for r in rows:
            split = r["split_seconds"]
            total = sum(split.values()) or 1.0
            shares = [f"{split.get(k, 0.0) / total:.0%}" for k in shown]
            sizes = [f"{r[k] / 1024:,.1f}" for k in ("bytes_up_per_round", "bytes_down_per_round")]
            label = self.marked(f"{r['env']}, {r['setting']}, {name(r['method'])}", r)
            body.append([label, f"{r['cpu_seconds']:.0f}", *shares, *sizes])
        heads = ["", "CPU s", *shown, "KiB up a round", "KiB down"]
        return [
            "## Where the time goes", "", "Preset `tuned`, mean of seeds; all clients together.", "",
            *markdown(heads, body), "", *until_table(rows),
        ]  # fmt: skip


def mean(*names: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean over rows of each named value."""
    return {k: round(float(np.mean([s[k] for s in rows])), 2) for k in names}


def until_table(rows: Rows) -> list[str]:
    """Return the table of CPU seconds until the paper's return: a line for each cell, a column for each method."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    body = []
    for env, setting in dict.fromkeys((r["env"], r["setting"]) for r in rows):
        here = {r["method"]: r["until"] for r in select(rows, env=env, setting=setting)}
        texts = []
        for u in map(here.get, methods):
            missed = f" ({u['runs'] - u['reached']} of {u['runs']} not)" if u and u["reached"] < u["runs"] else ""
            texts.append(f"{u['cpu_seconds']:.0f}{missed}" if u else "–")
        body.append([f"{env}, {setting}", f"{next(iter(here.values()))['return']:.1f}", *texts])
    return ["### CPU seconds until the paper's return", "",
            "Until the mean of the last 100 training episodes has come up to what the paper's FedQHD has after 600,",
            "median of seeds; a run that does not get there counts with all that it took.", "",
            *markdown(["", "the paper", *map(name, methods)], body)]  # fmt: skip
