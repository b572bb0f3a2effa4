"""From run folders to the plain result files that tables, figures and the page are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.files import write_bytes
from fedqhd.core.presets import PRESETS
from fedqhd.report.figures import smooth
from fedqhd.report.stats import band, describe
from fedqhd.runs.outcome import training_returns
from fedqhd.studies.presets import Cell, cells, given, seeds
from fedqhd.studies.suite import Plan, main_job

SMOOTH, EVERY = 20, 5
"""Of a learning curve: episodes that a point is the mean of, and between two points."""
KEPT = ("final_return", "greedy_return", "cpu_seconds", "wall_seconds", "env_steps", "commit")
Row = dict[str, Any]


def write_json(file: Path, rows: Any) -> None:
    write_bytes(file, (json.dumps(rows, indent=1) + "\n").encode())


def read_json(file: Path) -> Any:
    return json.loads(file.read_text()) if file.exists() else []


def command(own: Mapping[str, Any]) -> str:
    """The run of a cell by itself."""

    def text(v: Any) -> str:
        return " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v)

    return " ".join(["fedqhd train", *(f"--{k.replace('_', '-')} {text(v)}" for k, v in own.items())])


def all_seeds(plan: Plan, preset: str, cell: Cell) -> list[int]:
    """Those asked for, and those that may be there from before."""
    return sorted({*plan.seeds_of(preset, cell), *seeds(preset, cell)})


def cell_record(plan: Plan, preset: str, cell: Cell) -> Row:
    """All runs of a cell, finished and failed, with the command that repeats one."""
    jobs = [main_job(plan, preset, cell, seed) for seed in all_seeds(plan, preset, cell)]
    done = [(job, s) for job in jobs if (s := job.summary())]
    failed = [{"seed": job.config.seed, **f} for job in jobs if (f := job.failure())]
    return {
        "preset": preset, **given(cell), "command": command(plan.own(preset, cell)),
        "learner": done[0][1]["learner"] if done else None, "episodes": jobs[0].config.episodes,
        "runs": [{"seed": job.config.seed, **{k: s[k] for k in KEPT}} for job, s in done],
        "failed": failed,
    }  # fmt: skip


def row(record: Mapping[str, Any]) -> Row:
    """A line of main.json."""
    runs: Sequence[Mapping[str, Any]] = record["runs"]

    def column(name: str) -> list[float]:
        return [r[name] for r in runs]

    return {
        **{k: record[k] for k in ("preset", "method", "env", "setting", "learner")},
        "seeds": len(runs), "episodes": record["episodes"],
        "final_return": describe(column("final_return")), "greedy_return": describe(column("greedy_return")),
        "cpu_seconds": round(float(np.mean(column("cpu_seconds"))), 1),
        "wall_seconds": round(float(np.mean(column("wall_seconds"))), 1),
        "env_steps": round(float(np.mean(column("env_steps")))),
        "commit": ", ".join(sorted({r["commit"] for r in runs})),
    }  # fmt: skip


def curve(plan: Plan, preset: str, cell: Cell) -> Row:
    """The training return as it rises: smoothed, mean of the clients, interquartile mean and interval of the seeds."""
    found = []
    for seed in all_seeds(plan, preset, cell):
        job = main_job(plan, preset, cell, seed)
        if job.summary():
            returns = training_returns(job.folder, job.config.clients, job.config.episodes)
            found.append(smooth(np.nanmean(returns, axis=0), SMOOTH)[EVERY - 1 :: EVERY])
    values, low, high = band(np.array([y[: min(map(len, found))] for y in found]))
    rounded = {name: [round(float(v), 1) for v in y] for name, y in (("iqm", values), ("lo", low), ("hi", high))}
    return {"preset": preset, **given(cell), "every": EVERY, **rounded}


def collect_main(plan: Plan, results: Path) -> list[Row]:
    """main.json, main-runs.json and curves.json anew from the folders; cells without one keep what the files had."""
    runs_file, rows_file, curves_file = (results / name for name in ("main-runs.json", "main.json", "curves.json"))
    records, curves = ({key(r): r for r in read_json(file)} for file in (runs_file, curves_file))
    for preset in plan.presets:
        for cell in plan.cells:
            found = cell_record(plan, preset, cell)
            if found["runs"] or found["failed"]:
                records[key(found)] = found
            if found["runs"]:
                curves[key(found)] = curve(plan, preset, cell)
    order = {(p, *c): k for k, (p, c) in enumerate(product(PRESETS, cells()))}
    ordered = sorted(records.values(), key=lambda r: order.get(key(r), len(order)))
    write_json(runs_file, ordered)
    lines = [json.dumps(curves[k]) for k in sorted(curves, key=lambda k: order.get(k, len(order)))]
    write_bytes(curves_file, ("[\n" + ",\n".join(lines) + "\n]\n").encode())
    rows = [row(r) for r in ordered if r["runs"]]
    write_json(rows_file, rows)
    return rows


def key(r: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return r["preset"], r["method"], r["env"], r["setting"]
