"""The result files as tables, page and charts read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedqhd.studies import registry, store
from fedqhd.studies.ablation_study import Ablation, groups
from fedqhd.studies.markdown import commits_of
from fedqhd.studies.store import read_rows

__all__ = ["ablations", "alterations", "read_rows"]


def ablations(results: Path) -> dict[str, dict[str, Any]]:
    """The rows of each ablation by its title, with the commits and the command that made them."""
    found = {}
    for study in registry.every():
        if isinstance(study, Ablation):
            for title, rows in groups(read_rows(results, study.name), study.over).items():
                command = f"fedqhd reproduce {study.name}"
                found[title] = {"rows": rows, "over": study.over, "commit": commits_of(rows), "command": command}
    return found


def alterations(results: Path) -> list[str]:
    """How the result files of a folder were altered, in words; empty where they are as published."""
    found = (store.read(results, study.name).get("altered") for study in registry.every())
    return list(dict.fromkeys(text for text in found if text))
