"""`fedqhd compare`, which compares finished runs."""

from __future__ import annotations

import argparse
from typing import Any

from fedqhd.ui.train import add_trust


def add_compare(commands: Any) -> None:
    """Add `fedqhd compare` to the subparsers of the command line."""
    p = commands.add_parser(
        "compare", help="compare finished runs", allow_abbrev=False,
        description="Group finished runs by the settings in which they differ. Print the returns of each group with "
        "95 %% bootstrap intervals, and the probability that one group is better than another. With --out, also write "
        "a picture of the learning curves and one self-contained web page.",
    )  # fmt: skip
    p.add_argument("runs", metavar="RUN", nargs="+", help="folder of a finished run, or a folder of such folders")
    p.add_argument(
        "--by", nargs="+", default=[], metavar="SETTING",
        help="group by these settings, such as method (by those in which the runs differ)",
    )  # fmt: skip
    p.add_argument(
        "--out", default="", metavar="FOLDER", help="folder for comparison.png and comparison.html (not written)"
    )
    add_trust(p)


def run_compare(args: argparse.Namespace) -> None:
    """Run `fedqhd compare`."""
    from rich.console import Console

    from fedqhd.api.compare import compare
    from fedqhd.report.compare import show

    found = compare(args.runs, [name.replace("-", "_") for name in args.by], args.trust)
    show(Console(), found.groups, found.notes)
    if args.out:
        print("written:", *found.save(args.out))
