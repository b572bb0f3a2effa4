"""Adds to the site what is not in docs/: the results that pages link to, and the --help of every command."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from fedqhd.ui.cli import make_parser

ROOT = Path(__file__).parent.parent
BESIDE = InclusionLevel.NOT_IN_NAV
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the result files and the page of the commands."""
    for path in sorted((ROOT / "results").glob("*.*")):
        files.append(File.generated(config, f"results/{path.name}", content=path.read_bytes(), inclusion=BESIDE))
    files.append(File.generated(config, "commands.md", content=commands()))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Let links that lead out of docs/ point to the file in the site or, if there is none, keep only their text."""

    def link(match: re.Match[str]) -> str:
        label, path = match.groups()
        return f"[{label}]({path})" if path.startswith("results/") else label

    return OUTSIDE.sub(link, markdown)


def commands() -> str:
    """Return the page with the --help of every command."""
    parser = make_parser(["train"])
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    parts = ["# Commands\n", "Every setting of `train` is also a key of a TOML file (`--config`), with `_` for `-`.\n"]
    for name, sub in subparsers.choices.items():
        sub.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
        parts.append(f"## fedqhd {name}\n\n```text\n{sub.format_help()}```\n")
    return "\n".join(parts)
