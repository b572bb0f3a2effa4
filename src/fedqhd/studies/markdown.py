"""Helpers for tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def select(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows that have these values."""
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose first column is aligned to the left and all others to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *body]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def commits_of(rows: Rows) -> str:
    """Return the commits that made these rows, separated by commas."""
    return ", ".join(sorted({c for r in rows for c in r["commit"].split(", ")}))


def interval_text(v: Mapping[str, float]) -> str:
    """Return an interquartile mean with its interval, given as in `fedqhd.studies.stats.describe`."""
    return f"{v['iqm']:.1f} [{v['lo']:.1f}, {v['hi']:.1f}]"


def commands_text(commands: Sequence[str], seeds: str) -> list[str]:
    """Return the end of a table: the commands that repeat each of its runs."""
    return ["", f"Each run by itself, with `--seed` {seeds}:", "", "```", *commands, "```", ""]
