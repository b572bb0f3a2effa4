"""`fedqhd reproduce`, which makes the runs of a study, and `fedqhd report`, which presents the results."""

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
    """Add `fedqhd reproduce` to the subparsers of the command line."""
    p = commands.add_parser(
        "reproduce", help="reproduce the tables and figures of the paper, and further studies", allow_abbrev=False,
        description="Make the runs of a study, one per core, and write its result file, table and charts. STUDY is a "
        "name from --list, `all` for those of the paper, or module:Class for your own. Finished runs are not repeated, "
        "and interrupted runs continue. Results of runs with --set or from uncommitted code are kept apart, in "
        "RESULTS/altered/.",
    )  # fmt: skip
    p.add_argument("study", metavar="STUDY", nargs="?", default="", help="name from --list, all, or module:Class")
    p.add_argument("--list", action="store_true", help="list all studies and their cost in core-hours")
    for name, only in (
        ("preset", f"these presets ({', '.join(PRESETS)})"),
        ("methods", "these methods, such as fedqhd"),
        ("envs", "these environments, such as CartPole-v1"),
        ("settings", f"these settings ({', '.join(SETTINGS)})"),
    ):
        p.add_argument(f"--{name}", nargs="+", default=[], metavar=name.rstrip("s").upper(), help=f"only {only}")
    p.add_argument(
        "--seeds", nargs="+", type=int, default=None, metavar="SEED", help="only these seeds (all seeds of the study)"
    )
    p.add_argument("--collect", action="store_true", help="make no runs; write the result files from the finished ones")
    p.add_argument("--workers", type=int, default=0, help="number of runs at a time (one per core)")
    p.add_argument("--out", default="runs/reproduce", metavar="FOLDER", help="folder of the runs (runs/reproduce)")
    p.add_argument("--results", default="results", metavar="FOLDER", help="folder of the result files (results)")
    p.add_argument("--tuned", default=str(TUNED), metavar="FOLDER", help="folder of tuned settings (in the package)")
    p.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="override settings in all runs, such as episodes=50"
    )


def make_plan(args: argparse.Namespace) -> Plan:
    """Return the plan that the arguments of `fedqhd reproduce` describe.

    Raises:
        FedQHDError: If a name is unknown or a number is out of range.
    """
    from fedqhd.studies.plan import Plan
    from fedqhd.studies.presets import ENVS, METHODS, parse_set

    for name, choices in {"preset": PRESETS, "methods": METHODS, "envs": ENVS, "settings": SETTINGS}.items():
        setattr(args, name, getattr(args, name) or list(choices))
        for value in getattr(args, name):
            if value not in choices:
                near = nearest(value, choices)
                raise FedQHDError(f"{name}={value!r} is unknown{near}: choose from {', '.join(choices)}")
    if args.workers < 0:
        raise FedQHDError(f"workers={args.workers} is not possible: it must be at least 1, or 0 for one per core")
    for seed in args.seeds or []:
        if not 0 <= seed < 100:
            raise FedQHDError(f"seeds={seed} is not possible: it must be from 0 to 99, the others are for tuning")
    return Plan(
        presets=args.preset, methods=args.methods, envs=args.envs, settings=args.settings, seeds=args.seeds,
        out=Path(args.out), tuned=Path(args.tuned), overrides=parse_set(args.set),
    )  # fmt: skip


def run_reproduce(args: argparse.Namespace) -> int:
    """Run `fedqhd reproduce`. Return 1 if a run failed, else 0."""
    from rich.console import Console

    from fedqhd.report.board import run_all_series
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
                f"collect=True is not possible with {study.name}: a search writes its results when it ends"
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


def list_studies(console: Console, results: Path) -> None:
    """Print a table of all studies with their cost and purpose. Costs are measured where `results` archives runs."""
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
    console.print("\nCore-hours are measured for archived runs and estimated for all others. `fedqhd reproduce all` "
                  "makes the studies of the paper with the settings that `tune` chose.", highlight=False)  # fmt: skip


def add_report(commands: Any) -> None:
    """Add `fedqhd report` to the subparsers of the command line."""
    p = commands.add_parser(
        "report", help="make tables, figures and a web page from result files", allow_abbrev=False,
        description="Make RESULTS.md, figures and one self-contained web page from the result files of "
        "`fedqhd reproduce`.",
    )  # fmt: skip
    p.add_argument("--results", default="results", metavar="FOLDER", help="folder of the result files (results)")
    p.add_argument("--out", default="report", metavar="FOLDER", help="folder for index.html and the figures (report)")
    p.add_argument("--markdown", default="RESULTS.md", metavar="FILE", help="file for the tables (RESULTS.md)")
    p.add_argument(
        "--runs",
        default="runs/reproduce",
        metavar="FOLDER",
        help="folder of runs whose policies are shown (runs/reproduce)",
    )
    p.add_argument("--tensorboard", default="", metavar="FOLDER", help="also write TensorBoard data to this folder")


def run_report(args: argparse.Namespace) -> None:
    """Run `fedqhd report`."""
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
    try:
        markdown, (text, pictures) = results_markdown(results), page(results)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # Each study reads the rows of its own file, which somebody else may have made.
        why = f"{type(error).__name__}: {error!s:.80}"
        raise FedQHDError(f"results={args.results!r} holds rows that no study of this version writes: {why}") from None
    write_bytes(args.markdown, markdown.encode())
    for name, picture in pictures.items():
        write_bytes(out / "figures" / name, picture.encode())
    write_bytes(out / "index.html", text.encode())
    written = [args.markdown, f"{out}/index.html", f"{out}/figures/"]
    if args.tensorboard:
        from fedqhd.report.tensorboard import write_events

        write_events(results, Path(args.tensorboard))
        written.append(f"{args.tensorboard} (tensorboard --logdir {args.tensorboard})")
    print(f"written: {' '.join(written)}")
