"""The tables of RESULTS.md, made from the result files alone."""

from __future__ import annotations

from pathlib import Path

from fedqhd.studies import registry, store


def results_markdown(results: Path) -> str:
    """Return the text of RESULTS.md: the tables of all studies that belong there, in the order of the registry."""
    found = [(s, store.read(results, s.name)) for s in registry.every() if s.in_results]
    shown = [(study, one["rows"]) for study, one in found if one["rows"]]
    marks = [f"**{text}**\n" for text in dict.fromkeys(one["altered"] for _, one in found if "altered" in one)]
    tables = [line for study, rows in shown for line in study.table(rows)]
    ends = [line for study, rows in shown for line in study.appendix(rows)]
    return "\n".join([*marks, *tables, *ends]).rstrip() + "\n"
