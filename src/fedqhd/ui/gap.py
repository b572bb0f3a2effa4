"""`fedqhd gap`: measures what federation cost the clients of a finished run, or gives advice before a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError


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

    from fedqhd import api
    from fedqhd.gap.measure import run_config
    from fedqhd.gap.reference import has_reference, path_of, settings_for
    from fedqhd.report.gap import show

    c = run_config(args.run)
    if not args.reference and has_reference(c.env, c.action_repeat):
        cached = path_of(c.env, settings_for(c.env, c.gamma))
        if not cached.exists():
            print(f"computing the reference Q* of {c.env}; it is cached in {cached} for the next time", flush=True)
    report = api.gap(
        args.run, args.reference, states=args.states, episodes=given.get("eval_episodes", 20), seed=given.get("seed", 0)
    )
    show(Console(), report)
    print(f"written to {args.run}: gap.json gap.png")


def run_advise(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Run `fedqhd gap --advise` for the settings `given` as flags."""
    from rich.console import Console

    from fedqhd import api
    from fedqhd.gap.measure import run_config
    from fedqhd.report.gap import show_advice
    from fedqhd.runs.config import resolve

    if args.run:
        run_config(args.run)  # refuses what is not the folder of a run
    file = args.config or (str(Path(args.run) / "config.toml") if args.run else "")
    config = resolve({"setting": "heterogeneous", **given} if not file else given, file)
    show_advice(Console(), api.advise(config, run=args.run))
