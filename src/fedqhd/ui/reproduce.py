"""`fedqhd reproduce`: every table and figure of the paper, run by run; and `fedqhd report`, what came of it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import PRESETS, TUNED
from fedqhd.runs.settings import SETTINGS
from fedqhd.studies.presets import ENVS, METHODS, parse_set

if TYPE_CHECKING:
    from rich.console import Console

    from fedqhd.studies.pool import Job, Strand
    from fedqhd.studies.suite import Plan

WHAT = {
    "main": "the main table: all methods, environments and settings, in both presets",
    "tune": "the settings of preset `tuned`: eight quarter-length trials a cell, on seeds that are not reported",
    "cost": "where the time of the main table's runs went, on three seeds, and what travelled",
    "curves": "learning curves on CartPole and LunarLander, of the main table's runs",
    "ablation-dim": "the federation gap as D grows, without training and with it",
    "ablation-anchors": "the same as the number of anchors passes D",
    "scalability": "FedQHD with 1, 2, 5 and 20 clients",
    "robustness": "policies with damaged hypervectors and fewer bits, beside a DQN's",
    "all": "all of these but tune",
}

ARCHIVE = "runs"
"""Where result files have the runs behind them, in their folder."""


def add_reproduce(commands: Any) -> None:
    listed = "; ".join(f"{name}: {text}" for name, text in WHAT.items())
    p = commands.add_parser(
        "reproduce", help="every table and figure of the paper", allow_abbrev=False,
        description=f"Run what is behind the paper's tables and figures, one run a core. {listed}. What is finished is "
        "not run again, what was cut off goes on; result files are written from the runs' folders.",
    )  # fmt: skip
    p.add_argument("what", metavar="WHAT", help=", ".join(WHAT))
    for name, choices in (("preset", PRESETS), ("methods", METHODS), ("envs", ENVS), ("settings", SETTINGS)):
        only = f"only these of {', '.join(choices)}"
        p.add_argument(f"--{name}", nargs="+", default=list(choices), metavar=name.rstrip("s").upper(), help=only)
    p.add_argument(
        "--seeds", nargs="+", type=int, default=None, metavar="SEED", help="only these (3, 5 or 10 from 0 on)"
    )
    p.add_argument("--collect", action="store_true", help="run nothing, write the result files from what is there")
    p.add_argument("--workers", type=int, default=0, help="runs at a time (one a core)")
    p.add_argument("--out", default="runs/reproduce", metavar="FOLDER", help="where the runs are (runs/reproduce)")
    p.add_argument("--results", default="results", metavar="FOLDER", help="where result files go (results)")
    p.add_argument("--tuned", default=str(TUNED), metavar="FOLDER", help="tuned settings (the package's configs/tuned)")
    p.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings over all others, e.g. episodes=50"
    )


def make_plan(args: argparse.Namespace) -> Plan:
    from fedqhd.core.errors import nearest
    from fedqhd.studies.suite import Plan

    chosen = {"preset": PRESETS, "methods": METHODS, "envs": ENVS, "settings": SETTINGS, "what": tuple(WHAT)}
    for name, choices in chosen.items():
        given = getattr(args, name)
        for value in [given] if isinstance(given, str) else given:
            if value not in choices:
                near = nearest(value, choices)
                raise FedQHDError(f"{name}={value!r} is unknown{near}: choose from {', '.join(choices)}")
    if args.workers < 0:
        raise FedQHDError(f"workers={args.workers} is not possible: it must be at least 1, or 0 for one a core")
    for seed in args.seeds or []:
        if not 0 <= seed < 100:
            raise FedQHDError(f"seeds={seed} is not possible: those reported are from 0 to 99, the others for tuning")
    return Plan(
        presets=args.preset, methods=args.methods, envs=args.envs, settings=args.settings, seeds=args.seeds,
        out=Path(args.out), tuned=Path(args.tuned), others=parse_set(args.set),
    )  # fmt: skip


def run_reproduce(args: argparse.Namespace) -> int:
    """0, or 1 where a run failed."""
    from rich.console import Console

    plan = make_plan(args)
    console = Console()
    parts = [w for w in WHAT if w not in ("tune", "all", "curves")] if args.what == "all" else [args.what]
    failed = 0
    for what in parts:
        if len(parts) > 1:
            console.rule(what, align="left")
        if what == "tune":
            failed += tune(plan, args, console)
        elif what in ("main", "curves"):
            failed += reproduce_main(plan if what == "main" else narrowed(plan), args, console)
        else:
            failed += reproduce_study(what, plan, args, console)
    return int(failed > 0)


def narrowed(plan: Plan) -> Plan:
    """The two environments and the preset of which the paper draws learning curves."""
    from fedqhd.studies.suite import SCALED

    envs = [e for e in plan.envs if e in SCALED] or plan.envs
    return dataclasses.replace(plan, presets=plan.presets[:1], envs=envs)


def reproduce_study(what: str, plan: Plan, args: argparse.Namespace, console: Console) -> int:
    """Its runs, then its result file."""
    from fedqhd.report import studies
    from fedqhd.studies import archive, suite
    from fedqhd.studies.pool import single

    results = Path(args.results)
    collect: Callable[..., None]
    if what == "cost":
        archive.restore(results / ARCHIVE, plan.out, suite.main_jobs(plan))  # further seeds count, but are not run
        plan = dataclasses.replace(plan, seeds=plan.seeds or suite.THREE)
        jobs, collect = suite.main_jobs(plan), studies.collect_cost
    elif what == "scalability":
        jobs, collect = suite.scalability_jobs(plan), studies.collect_scalability
    elif what == "robustness":
        jobs, collect = suite.robustness_jobs(plan), studies.collect_robustness
    else:
        over = {"ablation-dim": "D", "ablation-anchors": "m"}[what]
        jobs, collect = suite.ablation_jobs(plan, over), partial(studies.collect_ablation, over=over)
    if what.startswith("ablation"):  # these look into the models of their runs, which no archive has
        failed = run_strands([single(job) for job in jobs], len(jobs), args, console)
    else:
        failed = run_jobs(jobs, args, console, models=what == "robustness")
    console.print(f"making the result file of {what}", highlight=False)
    collect(plan, results=results)
    if what == "robustness":
        archive.store(results / ARCHIVE, plan.out, jobs)
    file = "ablation" if what.startswith("ablation") else what
    console.print(f"what came of it is in {results}/{file}.json", highlight=False, soft_wrap=True)
    return failed


def run_strands(strands: list[Strand], total: int, args: argparse.Namespace, console: Console) -> int:
    """How many failed."""
    if args.collect:
        return 0
    from fedqhd.engines import cores
    from fedqhd.studies import pool
    from fedqhd.ui.board import Board

    workers = args.workers or cores()
    try:
        with Board(console, total, workers) as board:
            pool.run(strands, workers, board)
    except KeyboardInterrupt as stop:
        stop.add_note("; every run goes on from its last round when the same command is given again")
        raise
    return board.fails


def run_jobs(jobs: list[Job], args: argparse.Namespace, console: Console, models: bool = False) -> int:
    """All that are neither here nor in the archive, which they are added to; with `models`, all whose models are."""
    from fedqhd.studies import archive

    home, out = Path(args.results) / ARCHIVE, Path(args.out)
    found = archive.restore(home, out, jobs)
    if found:
        console.print(f"{found} runs come from {home}", highlight=False)
    if models:
        archive.forget_without_models(jobs)
    try:
        return run_strands([archive.kept(home, out, job) for job in jobs], len(jobs), args, console)
    finally:  # several of these commands at a time may write over each other's lines; who ends last has all
        archive.store(home, out, jobs)


def reproduce_main(plan: Plan, args: argparse.Namespace, console: Console) -> int:
    from fedqhd.report.collect import collect_main
    from fedqhd.studies.presets import tuned
    from fedqhd.studies.suite import main_jobs

    bare = [c for c in plan.cells if tuned(c, plan.tuned) is None] if "tuned" in plan.presets else []
    if bare:
        console.print(f"note: {len(bare)} cells are not tuned yet and run with the settings tuning starts from",
                      highlight=False, soft_wrap=True)  # fmt: skip
    jobs = main_jobs(plan)
    try:
        failed = run_jobs(jobs, args, console)
    finally:
        rows = collect_main(plan, Path(args.results))
    console.print(f"{len(rows)} rows are in {args.results}/main.json, their runs in {args.results}/main-runs.json; "
                  "fedqhd report makes tables and a page of them", highlight=False, soft_wrap=True)  # fmt: skip
    return failed


def tune(plan: Plan, args: argparse.Namespace, console: Console) -> int:
    from fedqhd.studies.tune import TRIALS, search, searched

    if args.collect:
        raise FedQHDError("collect=True is not possible with tune: what a search chose is written when it ends")
    record = Path(args.results) / "tuning.json"
    every = list(dict.fromkeys(c.source for c in plan.cells))
    before = searched(record)
    cells = [c for c in every if c not in before]
    if len(cells) < len(every):
        console.print(f"{len(every) - len(cells)} cells are tuned already: they are in {record}", highlight=False)
    strands = [search(plan.out, cell, plan.others, record, plan.tuned) for cell in cells]
    failed = run_strands(strands, TRIALS * len(cells), args, console)
    console.print(f"settings are in {plan.tuned}, their trials in {record}", highlight=False, soft_wrap=True)
    return failed


def add_report(commands: Any) -> None:
    p = commands.add_parser(
        "report", help="tables, figures and a page from result files", allow_abbrev=False,
        description="Make RESULTS.md, figures and one self-contained page of what `fedqhd reproduce` wrote.",
    )  # fmt: skip
    p.add_argument("--results", default="results", metavar="FOLDER", help="where the result files are (results)")
    p.add_argument("--out", default="report", metavar="FOLDER", help="where index.html and figures go (report)")
    p.add_argument("--markdown", default="RESULTS.md", metavar="FILE", help="where the tables go (RESULTS.md)")
    p.add_argument(
        "--runs", default="runs/reproduce", metavar="FOLDER", help="runs whose policies are shown (runs/reproduce)"
    )
    p.add_argument("--tensorboard", default="", metavar="FOLDER", help="write the same data for TensorBoard, too")


def run_report(args: argparse.Namespace) -> None:
    results, out = Path(args.results), Path(args.out)
    if not (results / "main.json").exists():
        raise FedQHDError(f"results={args.results!r} holds no main.json: make it with fedqhd reproduce main")
    from fedqhd.core.files import write_bytes
    from fedqhd.report.page import page
    from fedqhd.report.policies import film
    from fedqhd.report.study_tables import studies
    from fedqhd.report.tables import results_markdown
    from fedqhd.studies.suite import Plan

    film(Plan(out=Path(args.runs)), results / "policies")
    write_bytes(args.markdown, results_markdown(results, studies(results)).encode())
    text, pictures = page(results)
    for name, picture in pictures.items():
        write_bytes(out / "figures" / name, picture.encode())
    write_bytes(out / "index.html", text.encode())
    written = [args.markdown, f"{out}/index.html", f"{out}/figures/"]
    if args.tensorboard:
        from fedqhd.report.tensorboard import write_events

        write_events(results, Path(args.tensorboard))
        written.append(f"{args.tensorboard} (tensorboard --logdir {args.tensorboard})")
    print(f"written: {' '.join(written)}")
