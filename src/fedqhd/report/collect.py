"""Access to the result files for the page and its charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedqhd.studies import registry, store
from fedqhd.studies.ablation_study import Ablation, groups
from fedqhd.studies.markdown import commits_of
from fedqhd.studies.store import read_rows

__all__ = ["ablations", "alterations", "read_rows"]


def ablations(results: Path) -> dict[str, dict[str, Any]]:
    """Return, for each ablation figure by title, its rows, its x axis, and the commits and command that made them."""
    found = {}
    for study in registry.every():
        if isinstance(study, Ablation):
            for title, rows in groups(read_rows(results, study.name), study.over).items():
                command = f"fedqhd reproduce {study.name}"
                found[title] = {"rows": rows, "over": study.over, "commit": commits_of(rows), "command": command}
    return found


def alterations(results: Path) -> list[str]:
    """Return how the runs behind the result files differ from published ones, in words; empty if they do not."""
    found = (store.read(results, study.name).get("altered") for study in registry.every())
    return list(dict.fromkeys(text for text in found if text))
