"""`fedqhd train`: trains a federation, and where the settings of a run come from."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import PLAIN, PRESETS
from fedqhd.core.trust import FLAG, grant


def add_train(commands: Any, add_settings: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `train` to the command line.

    Args:
        commands: The subparsers of the main parser.
        add_settings: Adds a flag for each setting to a parser.
    """
    train = commands.add_parser(
        "train", help="train a federation", allow_abbrev=False,
        usage="fedqhd train [--config FILE] [--preset NAME] [--SETTING VALUE ...]",
        description="Train a federation. Defaults are shown in brackets. A preset overrides the defaults, --config "
        "overrides the preset, and flags override everything. A flag that has no effect on the chosen method is an "
        "error.",
    )  # fmt: skip
    train.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="TOML file of settings; its keys are the names of the flags, with _ for -",
    )
    train.add_argument("--overwrite", action="store_true", help="replace an existing run in --out")
    train.add_argument("--resume", action="store_true", help="continue the run in --out")
    train.add_argument(
        "--extend", type=int, default=None, metavar="NUMBER",
        help="go on with the finished run in --out for this many more episodes (or steps) per client",
    )  # fmt: skip
    add_trust(train)
    train.add_argument("--profile", action="store_true", help="print how the time was spent")
    train.add_argument(
        "--preset",
        default=PRESETS[0],
        metavar="|".join((*PRESETS, PLAIN)),
        help="source of all settings that are not given: those of the main table, those of the paper, or only the "
        f"file of the environment ({PRESETS[0]})",
    )
    add_settings(train)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--trust` to a command that reads the folder of a run."""
    parser.add_argument("--trust", action="store_true", help=FLAG)


def settings(args: argparse.Namespace, given: dict[str, Any]) -> Config:
    """Return the settings of a run, from the flags in `given` and a file.

    The file is that of --config or, with --resume, the config.toml of the run to continue.
    """
    from fedqhd.runs.config import check_code, code_names, resolve

    file = args.config
    if args.trust and "out" in given:
        grant(given["out"])
    if args.resume and not file and "out" in given:
        saved = Path(given["out"]) / "config.toml"
        if saved.exists():
            check_code(saved, code_names(given))
            file = str(saved)
        elif len(given) == 1:
            raise FedQHDError(f"out={given['out']!r} holds no run to continue: start it without --resume")
    return resolve(given, file, preset=getattr(args, "preset", PRESETS[0]))


def run_train(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Run `fedqhd train` with the settings `given` as flags."""
    if args.extend is not None and (args.resume or args.overwrite):
        raise FedQHDError("extend, resume and overwrite exclude each other: choose one")
    config = None if args.extend is not None else settings(args, given)

    from rich.console import Console

    from fedqhd.api.training import train
    from fedqhd.report.terminal import Messages, Progress, closing, profile
    from fedqhd.runs.folder import describe_interruption

    console = Console()
    try:
        with Progress(console) as progress, Messages(console):
            if config is None:
                hooks = [progress, *given.pop("callbacks", ())]
                run = train(**given, extend=args.extend, trust=args.trust, callbacks=hooks)
            else:
                run = train(config, overwrite=args.overwrite, resume=args.resume, callbacks=progress)
    except KeyboardInterrupt as stop:
        stop.add_note(describe_interruption(config or Config(given)))
        raise
    closing(console, run.summary)
    if args.profile:
        profile(console, run.summary)
    console.print(
        f"results in {run.folder}: config.toml metrics.jsonl summary.json curves.png models/",
        highlight=False,
        soft_wrap=True,
    )
