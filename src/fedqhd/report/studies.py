"""The result files of everything but the main table: cost, scalability, the ablations, robustness."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.core.files import write_bytes
from fedqhd.gap.reference import reference
from fedqhd.report import paper
from fedqhd.report.ablation import draw
from fedqhd.report.collect import Row, all_seeds, command, read_json, write_json
from fedqhd.report.stats import describe
from fedqhd.runs.commit import commit
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import passed, training_returns
from fedqhd.runs.rounds_log import cpu_seconds_until
from fedqhd.studies.ablation import ANCHORS, DIMENSIONS, MODES, Setting, analytic, slope, trained
from fedqhd.studies.archive import EXTRA
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, Cell, given
from fedqhd.studies.robustness import endurance
from fedqhd.studies.suite import (
    ABLATED,
    DAMAGED,
    SCALES,
    THREE,
    TRAINED,
    Plan,
    ablation_job,
    damaged_jobs,
    main_job,
    scalability_cells,
    scalability_job,
    scaled,
)

LAST_SCALED = 30
"""Episodes at the end that the paper's scalability is measured on."""


def commits(summaries: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted({s["commit"] for s in summaries}))


def merge(file: Path, new: Sequence[Row], key: Sequence[str]) -> None:
    """New rows in place of old ones of the same key."""
    rows = {tuple(r[k] for k in key): r for r in (*read_json(file), *new)}
    write_json(file, list(rows.values()))


def until(cell: Cell, ended: Sequence[tuple[Job, Mapping[str, Any]]]) -> Row:
    """CPU seconds until the last 100 episodes have the return that the paper's FedQHD has in the end, median of the
    seeds; who does not get there has at least spent what it has spent."""
    published = paper.final_return(paper.FEDQHD, cell.env, cell.setting)
    assert published
    goal, seconds, there = published["mean"], [], 0
    for job, summary in ended:
        at = passed(training_returns(job.folder, summary["clients"], summary["episodes"]), goal)
        seconds.append(cpu_seconds_until(job.folder, at) if at else summary["cpu_seconds"])
        there += at is not None
    return {"return": goal, "cpu_seconds": round(float(np.median(seconds)), 1), "runs": len(ended), "reached": there}


def collect_cost(plan: Plan, results: Path) -> None:
    """cost.json: where the time of a run went, and what travelled a round; of the main table's own runs."""
    rows = []
    for preset in plan.presets:
        for cell in plan.cells:
            jobs = [main_job(plan, preset, cell, seed) for seed in all_seeds(plan, preset, cell)]
            ended = [(job, s) for job in jobs if (s := job.summary())]
            done = [s for _, s in ended]
            if not done:
                continue

            def mean(*names: str, rows: Sequence[Mapping[str, Any]] = done) -> dict[str, float]:
                return {k: round(float(np.mean([s[k] for s in rows])), 2) for k in names}

            rows.append({
                "preset": preset, **given(cell), "seeds": len(done), **mean("cpu_seconds", "wall_seconds"),
                "split_seconds": mean(*done[0]["split_seconds"], rows=[s["split_seconds"] for s in done]),
                **mean("bytes_up_per_round", "bytes_down_per_round", "updates", "env_steps"),
                "paper_minutes": paper.minutes(*cell), "until": until(cell, ended), "commit": commits(done),
            })  # fmt: skip
    merge(results / "cost.json", rows, ("preset", "method", "env", "setting"))


def collect_scalability(plan: Plan, results: Path) -> None:
    """scalability.json: the return over the last 30 episodes by the number of clients."""
    rows = []
    for cell in scalability_cells(plan):
        for clients in SCALES:
            jobs = [scalability_job(plan, cell, clients, seed) for seed in plan.seeds or THREE]
            done = [(job, s) for job in jobs if (s := job.summary())]
            if not done:
                continue
            last = [float(np.nanmean(training_returns(job.folder, clients, job.config.episodes)[:, -LAST_SCALED:]))
                    for job, _ in done]  # fmt: skip
            solved = paper.figures()["scalability"]["solved_threshold"][cell.env]
            rows.append({
                **given(cell), "clients": clients, "seeds": len(done), "episodes": done[0][0].config.episodes,
                "final_return": describe(last), "greedy_return": describe([s["greedy_return"] for _, s in done]),
                "solved": round(float(np.mean(np.array(last) >= solved)), 2),
                "cpu_seconds": round(float(np.mean([s["cpu_seconds"] for _, s in done])), 1),
                "command": command(scaled(plan, cell, clients)),
                "commit": commits([s for _, s in done]),
            })  # fmt: skip
    merge(results / "scalability.json", rows, ("env", "setting", "clients"))


def collect_robustness(plan: Plan, results: Path) -> None:
    """robustness.json: greedy returns of damaged policies, of each seed's first client."""
    rows = []
    for env in [e for e in ENVS if e in plan.envs]:
        for model, (preset, method) in DAMAGED.items():
            done = [(job, s) for job in damaged_jobs(plan, env, model) if (s := job.summary())]
            each = [endurance(job.folder, job.folder / EXTRA, job.config.seed) for job, _ in done]
            for same in zip(*each, strict=True):
                rows.append({"env": env, "model": model, "preset": preset, "method": method, "seeds": len(same),
                             "damage": same[0]["damage"], "amount": same[0]["amount"],
                             "greedy_return": describe([r["greedy_return"] for r in same]),
                             "commit": commits([s for _, s in done])})  # fmt: skip
    merge(results / "robustness.json", rows, ("env", "model", "damage", "amount"))


def analytic_rows(plan: Plan, over: str) -> list[Row]:
    """Each pair of D and m is computed once and kept."""
    rows: list[Row] = []
    names = ("env", "setting", "clients", "anchor_source", "lam")
    for seed in plan.seeds or THREE:
        own = {**{k: ABLATED[k] for k in names}, **{k: v for k, v in plan.others.items() if k in names}, "seed": seed}
        mark = zlib.crc32(json.dumps(own, sort_keys=True).encode())
        world = None
        for D, m in DIMENSIONS if over == "D" else ANCHORS:
            kept = plan.out / "ablation" / "analytic" / f"{D}-{m}-{mark:08x}.json"
            if not kept.exists():
                world = world or Setting.make(resolve(own), reference(str(own["env"]))[0])
                made = [{**row, "commit": commit()} for row in analytic(world, D, m)]
                write_bytes(kept, json.dumps(made).encode())
            rows += json.loads(kept.read_text())
    return rows


def trained_rows(plan: Plan, over: str) -> list[Row]:
    rows = []
    for seed in plan.seeds or THREE:
        world = None
        for D, m in TRAINED[over]:
            for mode in MODES:
                job = ablation_job(plan, D, m, mode, seed)
                summary = job.summary()
                if summary is None:
                    continue
                world = world or Setting.make(job.config, reference(job.config.env)[0])
                returns = training_returns(job.folder, job.config.clients, job.config.episodes)
                rows.append({**trained(job.folder, world, summary, returns), "commit": summary["commit"]})
    return rows


def slopes_of(rows: Sequence[Row]) -> dict[str, tuple[float, float, float]]:
    """Of every measure of the gap over D, with 95 % intervals, where there are enough dimensions for a line."""
    found = {}
    for mode, most in product(MODES, (512, 2048)):
        part = [r for r in rows if r["compile"] == mode and r["D"] <= most]
        if len({r["D"] for r in part}) > 2:
            for value in ("gap_rms", "gap_max", "gap_everywhere_rms"):
                found[f"{mode}, {value}, D up to {most}"] = slope(part, value)
    return found


def collect_ablation(plan: Plan, over: str, results: Path) -> None:
    """ablation.json, and a picture of each: without training and with it."""
    file = results / "ablation.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    source, lam = (plan.others.get(k, ABLATED[k]) for k in ("anchor_source", "lam"))
    name = {"D": "ablation-dim", "m": "ablation-anchors"}[over]
    options = "".join(f" {k}={v}" for k, v in plan.others.items())
    told = f"fedqhd reproduce {name}" + (f" --set{options}" if options else "")
    for mode, rows in (("analytic", analytic_rows(plan, over)), ("trained", trained_rows(plan, over))):
        if not rows:
            continue
        training = {"analytic": "without training", "trained": "after training"}[mode]
        key = f"{training}, over {over}, {source} anchors, lam={lam:g}"
        slopes = slopes_of(rows) if over == "D" else {}
        found[key] = {"command": told, "commit": commits(rows), "slopes": slopes,
                      "rows": [{k: v for k, v in r.items() if k not in ("curve", "alone")} for r in rows]}  # fmt: skip
        if len({r[over] for r in rows}) > 2:
            suffix = "" if lam == ABLATED["lam"] else f"-{lam:g}"
            picture = results / "images" / f"ablation-{over}-{mode}-{source}{suffix}.png"
            draw(rows, over, picture, is_trained=mode == "trained", title=f"{ABLATED['env']}, {key}")
    write_json(file, found)
