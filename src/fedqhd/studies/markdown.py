"""Tables in Markdown, and the choice of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def of(rows: Rows, **wanted: Any) -> Rows:
    """The rows that have these values."""
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: names to the left, numbers to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *body]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def commits_of(rows: Rows) -> str:
    """The commits that made these rows."""
    return ", ".join(sorted({c for r in rows for c in r["commit"].split(", ")}))


def interval_text(v: Mapping[str, float]) -> str:
    """An interquartile mean with its interval."""
    return f"{v['iqm']:.1f} [{v['lo']:.1f}, {v['hi']:.1f}]"


def commands_text(commands: Sequence[str], seeds: str) -> list[str]:
    """The end of a table: how each of its runs is made by itself."""
    return ["", f"Each run by itself, with `--seed` {seeds}:", "", "```", *commands, "```", ""]
