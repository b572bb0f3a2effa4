"""`fedqhd gap`: measures what federation cost the clients of a finished run, or gives advice before a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError
from fedqhd.core.trust import grant
from fedqhd.ui.train import add_trust


def add_gap(commands: Any, add_settings: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `gap` to the command line.

    Args:
        commands: The subparsers of the main parser.
        add_settings: Adds a flag for each setting to a parser.
    """
    gap = commands.add_parser(
        "gap", help="measure what federation cost the clients of a finished run, or give advice before a run",
        allow_abbrev=False, usage="fedqhd gap RUN | fedqhd gap --advise [RUN] [--config FILE] [--SETTING VALUE ...]",
        description="Measure what the last exchange of RUN cost each client, and why. With --advise, say before "
        "training whether the anchors and the ridge parameter suit the given settings; the advice is based on the "
        "teacher of RUN or, without RUN, of a short pilot run. Settings are given as for train.",
    )  # fmt: skip
    gap.add_argument("run", metavar="RUN", nargs="?", default="", help="folder of a finished run")
    gap.add_argument("--advise", action="store_true", help="say which anchors and ridge would suit the settings better")
    gap.add_argument("--reference", default="", metavar="RUN", help="finished run whose Q-function is taken for Q*")
    gap.add_argument("--states", type=int, default=None, help="states to project functions on (as many as needed)")
    gap.add_argument("--config", default="", metavar="FILE", help="with --advise: TOML file of settings")
    add_trust(gap)
    add_settings(gap)


def run_gap(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Run `fedqhd gap` with the settings `given` as flags; without --advise these are the seed and the episodes."""
    if args.advise:
        run_advise(args, given)
        return
    if not args.run:
        raise FedQHDError("RUN is missing: give the folder of a finished run, or --advise with settings")
    others = sorted(given.keys() - {"seed", "eval_episodes"})
    if others:
        raise FedQHDError(
            f"{others[0]}={given[others[0]]} can only be given with --advise: a finished run has its own settings"
        )
    from rich.console import Console

    from fedqhd.api import gap
    from fedqhd.report.gap import show
    from fedqhd.report.terminal import Messages

    console = Console()
    with Messages(console):
        report = gap.measure_gap(
            args.run, args.reference, states=args.states, episodes=given.get("eval_episodes", 20),
            seed=given.get("seed", 0), trust=args.trust,
        )  # fmt: skip
    show(console, report)
    print(f"written to {args.run}: gap.json gap.png")


def run_advise(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Run `fedqhd gap --advise` for the settings `given` as flags."""
    from rich.console import Console

    from fedqhd.api import gap
    from fedqhd.gap.measure import run_config
    from fedqhd.report.gap import show_advice
    from fedqhd.runs.config import resolve

    if args.run and args.trust:
        grant(args.run)
    if args.run:
        run_config(args.run)  # refuses what is not the folder of a run
    file = args.config or (str(Path(args.run) / "config.toml") if args.run else "")
    config = resolve({"setting": "heterogeneous", **given} if not file else given, file)
    show_advice(Console(), gap.advise(config, run=args.run))
