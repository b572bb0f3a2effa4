"""`fedqhd reproduce`: studies by name, run by run; and `fedqhd report`, what came of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.presets import PRESETS, SETTINGS, TUNED

if TYPE_CHECKING:
    from rich.console import Console

    from fedqhd.studies.plan import Plan
    from fedqhd.studies.pool import JobSeries


def add_reproduce(commands: Any) -> None:
    p = commands.add_parser(
        "reproduce", help="every table and figure of the paper, and our own", allow_abbrev=False,
        description="Make the runs of a study, one a core, and write its result file, table and charts. --list names "
        "all studies; `all` stands for those of the paper; module:Class for one that you wrote. What is finished is "
        "not run again, what was cut off goes on. Runs with --set or from uncommitted code are kept apart, in "
        "RESULTS/altered/.",
    )  # fmt: skip
    p.add_argument("study", metavar="STUDY", nargs="?", default="", help="a name of --list, all, or module:Class")
    p.add_argument("--list", action="store_true", help="name all studies, and what they cost in core-hours")
    for name, only in (
        ("preset", f"these of {', '.join(PRESETS)}"),
        ("methods", "these methods, such as fedqhd"),
        ("envs", "these environments, such as CartPole-v1"),
        ("settings", f"these of {', '.join(SETTINGS)}"),
    ):
        p.add_argument(f"--{name}", nargs="+", default=[], metavar=name.rstrip("s").upper(), help=f"only {only}")
    p.add_argument(
        "--seeds", nargs="+", type=int, default=None, metavar="SEED", help="only these (as many as the study has)"
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
    from fedqhd.studies.plan import Plan
    from fedqhd.studies.presets import ENVS, METHODS, parse_set

    for name, choices in {"preset": PRESETS, "methods": METHODS, "envs": ENVS, "settings": SETTINGS}.items():
        setattr(args, name, getattr(args, name) or list(choices))
        for value in getattr(args, name):
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
        out=Path(args.out), tuned=Path(args.tuned), overrides=parse_set(args.set),
    )  # fmt: skip


def run_reproduce(args: argparse.Namespace) -> int:
    """0, or 1 where a run failed."""
    from rich.console import Console

    from fedqhd.studies.registry import studies
    from fedqhd.studies.reproduce import reproduce

    console = Console()
    if args.list:
        list_studies(console, Path(args.results))
        return 0
    if not args.study:
        raise FedQHDError("STUDY is missing: fedqhd reproduce --list names all studies")
    plan = make_plan(args)
    parts = studies(args.study)
    for study in parts:
        if args.collect and not study.can_collect:
            raise FedQHDError(
                f"collect=True is not possible with {study.name}: what a search chose is written when it ends"
            )

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    def schedule(all_series: list[JobSeries], total: int) -> int:
        return 0 if args.collect else run_all_series(all_series, total, args.workers, console)

    failed = 0
    for study in parts:
        if len(parts) > 1:
            console.rule(study.name, align="left")
        failed += reproduce(study, plan, Path(args.results), schedule, say)
    return int(failed > 0)


def run_all_series(all_series: list[JobSeries], total: int, workers: int, console: Console) -> int:
    """How many failed."""
    from fedqhd.engines import cores
    from fedqhd.studies import pool
    from fedqhd.ui.board import Board

    workers = workers or cores()
    try:
        with Board(console, total, workers) as board:
            pool.run(all_series, workers, board)
    except KeyboardInterrupt as stop:
        stop.add_note("; every run goes on from its last round when the same command is given again")
        raise
    return board.fails


def list_studies(console: Console, results: Path) -> None:
    """All studies, what each costs and shows; measured costs are those of the archived runs."""
    from rich.table import Table

    from fedqhd.studies.archive import RUNS, Archive
    from fedqhd.studies.registry import every

    archive = Archive(results / RUNS, Path())
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("study", "core-hours", ""):
        table.add_column(title, justify="right" if title == "core-hours" else "left", no_wrap=title != "")
    for study in every():
        measured = archive.core_hours(study.run_folders)
        hours = (
            f"runs of {study.runs_from}"
            if study.runs_from
            else f"{measured:.1f}"
            if measured
            else f"about {study.hours:g}"
        )
        table.add_row(study.name, hours, study.about)
    console.print(table)
    console.print("\nCore-hours are measured where runs are archived, else estimated. `fedqhd reproduce all` makes the "
                  "paper's studies, with the settings that `tune` has chosen.", highlight=False)  # fmt: skip


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
    """Tables, figures and a page, of what the folder of results has."""
    results, out = Path(args.results), Path(args.out)
    from fedqhd.studies.registry import every

    if not any((results / f"{study.name}.json").exists() for study in every() if study.in_results):
        raise FedQHDError(f"results={args.results!r} holds no main.json: make it with fedqhd reproduce main")
    from fedqhd.core.files import write_bytes
    from fedqhd.report.page import page
    from fedqhd.report.policies import film
    from fedqhd.report.tables import results_markdown
    from fedqhd.studies.plan import Plan

    film(Plan(out=Path(args.runs)), results / "policies")
    write_bytes(args.markdown, results_markdown(results).encode())
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
