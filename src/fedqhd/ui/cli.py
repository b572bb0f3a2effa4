"""The command line `fedqhd COMMAND ...`. `fedqhd --help` lists the commands."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fedqhd._version import __version__
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.trust import grant
from fedqhd.deploy.cli import add_federate, run_federate
from fedqhd.ui.compare import add_compare, run_compare
from fedqhd.ui.gap import add_gap, run_gap
from fedqhd.ui.reproduce import add_report, add_reproduce, run_report, run_reproduce
from fedqhd.ui.train import add_train, add_trust, run_train, settings

WITH_SETTINGS = {"train", "gap", "federate"}
"""Commands that take the settings of a run."""
STOP = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop a command in good order."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that reports mistakes as a FedQHDError of one sentence."""

    def error(self, message: str) -> NoReturn:
        raise FedQHDError(f"{message}; see '{self.prog} --help'")


def no_settings(parser: argparse.ArgumentParser) -> None:
    """Add no flags. Commands without settings need not import those modules, which would slow down --help."""


def make_parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the whole command line.

    Args:
        words: The arguments to be parsed. Flags for settings are added only if a command among them takes settings,
            including the settings of a method or learner of the user's own that they choose.
    """
    parser = Parser(prog="fedqhd", description="Federated Q-learning in function space.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"fedqhd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_settings: Callable[[argparse.ArgumentParser], None] = no_settings
    if set(words) & WITH_SETTINGS:
        from fedqhd.ui.flags import SettingFlags

        add_settings = SettingFlags(words)

    add_train(commands, add_settings)
    evaluate = commands.add_parser("evaluate", help="evaluate the policies of a finished run", allow_abbrev=False)
    evaluate.add_argument("run", metavar="RUN", help="folder of a finished run")
    evaluate.add_argument("--episodes", type=int, default=100, help="fresh episodes for each client (100)")
    evaluate.add_argument("--seed", type=int, default=1, help="seed of the episodes (1)")
    add_trust(evaluate)

    play = commands.add_parser(
        "play", help="show a trained policy in a window, or write a GIF if there is no screen", allow_abbrev=False
    )
    play.add_argument("run", metavar="RUN", help="folder of a finished run")
    play.add_argument("--client", type=int, default=0, help="whose policy (0)")
    play.add_argument(
        "--gif", default="", metavar="FILE", help="write a GIF to FILE instead (without a screen: RUN/play.gif)"
    )
    play.add_argument("--seed", type=int, default=0, help="seed of the episode (0)")
    add_trust(play)

    export = commands.add_parser(
        "export", help="write a trained policy as ONNX, as one Python file or as a C header", allow_abbrev=False
    )
    export.add_argument("run", metavar="RUN", help="folder of a finished run")
    export.add_argument("--client", type=int, default=0, help="whose policy (0)")
    export.add_argument("--format", required=True, metavar="onnx|numpy|c", help="format of the file")
    export.add_argument("--out", required=True, metavar="FILE", help="file to write")
    add_trust(export)

    watch = commands.add_parser(
        "watch", help="follow a run on a web page that only this machine can open", allow_abbrev=False
    )
    watch.add_argument("run", metavar="RUN", help="folder of a run, which may still be in progress")
    watch.add_argument("--port", type=int, default=8765, help="port on 127.0.0.1, or 0 for any free port (8765)")
    watch.add_argument(
        "--wait", type=float, default=60.0, help="seconds to wait for a run that has not started yet (60)"
    )
    add_trust(watch)

    commands.add_parser(
        "doctor",
        help="show what is installed, which extras are missing and how fast the kernels are on this machine",
        allow_abbrev=False,
    )
    completion = commands.add_parser(
        "completion", help="print a script that completes commands and flags in a shell", allow_abbrev=False,
        description="Print a script that completes commands and flags. For bash, put "
        'eval "$(fedqhd completion bash)" into ~/.bashrc; for zsh, write the output to a file _fedqhd in $fpath.',
    )  # fmt: skip
    completion.add_argument("shell", metavar="bash|zsh|tcsh", help="shell that the script is for")

    add_gap(commands, add_settings)
    add_federate(commands, add_settings)
    add_compare(commands)
    add_reproduce(commands)
    add_report(commands)
    return parser


def parser_of(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    subparsers = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return subparsers.choices[command]


def run_evaluate(args: argparse.Namespace) -> None:
    """Run `fedqhd evaluate`."""
    if args.episodes < 1:
        raise FedQHDError(f"episodes={args.episodes} is not possible: it must be at least 1")
    from fedqhd.api.run import evaluate

    returns = evaluate(args.run, args.episodes, args.seed, args.trust)
    for client, row in enumerate(returns):
        spread = f"{row.mean():.1f} ± {row.std():.1f}, lowest {row.min():.1f}"
        print(f"client {client}: greedy return {spread}, {len(row)} episodes")
    print(f"mean of clients: {returns.mean():.1f}")


def run_play(args: argparse.Namespace) -> None:
    """Run `fedqhd play`."""
    from fedqhd.agents.policy import load_policy
    from fedqhd.report.play import has_screen, play

    policy = load_policy(args.run, args.client, args.trust)
    gif = Path(args.gif or Path(args.run) / "play.gif") if args.gif or not has_screen() else None
    total = play(policy, gif, args.seed)
    print(f"{policy.env}, client {args.client}: return {total:.1f}" + (f"; written to {gif}" if gif else ""))


def run_export(args: argparse.Namespace) -> None:
    """Run `fedqhd export`."""
    from fedqhd.export import export

    path = export(args.run, args.client, args.format, args.out, args.trust)
    print(f"written to {path}: {path.stat().st_size:,} bytes")


def run_watch(args: argparse.Namespace) -> None:
    """Run `fedqhd watch` until it is interrupted."""
    from fedqhd.ui.watch import serve

    if args.trust:
        grant(args.run)
    serve(args.run, args.port, args.wait, lambda text: print(text, flush=True))


def run_doctor(args: argparse.Namespace) -> int:
    """Run `fedqhd doctor` and return its exit code."""
    from rich.console import Console

    from fedqhd.ui.doctor import examine

    return examine(Console())


def run_completion(args: argparse.Namespace) -> None:
    """Run `fedqhd completion`."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise FedQHDError("completion needs shtab: install it with pip install 'fedqhd[completion]'") from error
    if args.shell not in shtab.SUPPORTED_SHELLS:
        raise FedQHDError(f"shell={args.shell!r} is unknown: choose from {', '.join(shtab.SUPPORTED_SHELLS)}")
    print(shtab.complete(make_parser(["train"]), shell=args.shell))


def on_signal(number: int, frame: object) -> NoReturn:
    """Stop the command in good order at the first signal. A second one kills the process at once."""
    for stop in STOP:
        signal.signal(stop, signal.SIG_DFL)
    raise KeyboardInterrupt(signal.Signals(number).name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after `fedqhd`; None stands for those of the process.

    Returns:
        The exit code: 0; 1 if a run failed; 2 if the user made a mistake; 128 + n after signal n.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        for stop in STOP:
            signal.signal(stop, on_signal)
        sys.path.append(os.getcwd())  # finds the user's module:name; last, so that it shadows no installed package
        parser = make_parser(words)
        args, unknown = parser.parse_known_args(words)
        given: dict[str, Any] = {}
        if args.command in WITH_SETTINGS:
            from fedqhd.ui.flags import given_settings

            given = given_settings(words, args)
        if unknown:
            known = [word for action in parser_of(parser, args.command)._actions for word in action.option_strings]
            parser.error(f"{unknown[0]!r} is not an argument of {args.command}{nearest(unknown[0], known)}")
        if args.command == "federate":
            run_federate(args, partial(settings, args, given))
        elif args.command in ("train", "gap"):
            {"train": run_train, "gap": run_gap}[args.command](args, given)
        else:
            others = {
                "evaluate": run_evaluate, "play": run_play, "export": run_export, "compare": run_compare,
                "reproduce": run_reproduce, "report": run_report, "watch": run_watch, "doctor": run_doctor,
                "completion": run_completion,
            }  # fmt: skip
            return others[args.command](args) or 0
    except FedQHDError as error:
        print(f"fedqhd: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:
            raise
        why = error.strerror or type(error).__name__
        print(f"fedqhd: {str(error.filename)!r:.200} cannot be used ({why}): give another name", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        name = str(stop) or "SIGINT"
        print(f"fedqhd: stopped by {name}{''.join(getattr(stop, '__notes__', []))}", file=sys.stderr)
        return 128 + signal.Signals[name]
    return 0
