"""Plans: which part of a study to run, and whether its settings or the code were altered."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedqhd.core.presets import PRESETS, SETTINGS, TUNED
from fedqhd.runs.commit import commit
from fedqhd.studies.archive import CHANGED, non_default_settings
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, METHODS, Cell, cells, plain, seeds, settings

ALTERED = "altered"
"""The subfolder of results and runs that keeps altered runs apart from published ones."""
LONGEST = 100
"""The largest number of characters of the name of a folder; a checksum replaces the rest."""


@dataclass(frozen=True)
class Plan:
    """The part of a study to run; by default, all of it."""

    presets: Sequence[str] = PRESETS
    methods: Sequence[str] = METHODS
    envs: Sequence[str] = ENVS
    settings: Sequence[str] = SETTINGS
    seeds: Sequence[int] | None = None
    """The seeds to run, or None for those of the study."""
    out: Path = Path("runs/reproduce")
    """The folder of all runs."""
    tuned: Path = TUNED
    """The folder of tuned settings."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of all runs, for a smaller copy of a study."""

    @property
    def cells(self) -> list[Cell]:
        """The chosen cells of the paper's main table."""
        return cells(self.methods, self.envs, self.settings)

    def seeds_of(self, preset: str, cell: Cell) -> Sequence[int]:
        """Return the seeds of a cell of the main table."""
        return seeds(preset, cell) if self.seeds is None else self.seeds

    def run_settings(self, preset: str, cell: Cell) -> dict[str, Any]:
        """Return the settings of a run of a cell of the main table, over the environment's defaults."""
        return {**settings(preset, cell, self.tuned), **self.overrides}

    def includes(self, run: Mapping[str, Any]) -> bool:
        """Return whether the plan includes a run with these settings.

        `envs` selects among the environments of the paper; runs in other environments are not affected by it.
        """
        env = run.get("env", ENVS[0])
        if env in ENVS and env not in self.envs:
            return False
        return run.get("setting", SETTINGS[0]) in self.settings and run.get("method", "fedqhd") in self.methods

    def job(self, place: str, settings: Mapping[str, Any], seed: int, name: str = "", kind: str = "") -> Job:
        """Return one run. Its folder depends on its settings, so that runs with other settings never share it.

        Args:
            place: The folder of all runs that differ only in the seed, relative to `out`.
            settings: The settings of the run over the environment's defaults.
            seed: The seed of the run.
            name: A description for the user; by default the place and the seed.
            kind: Runs of the same kind take about the same time; by default the place.
        """
        given = {"engine": "local", **settings, "seed": seed}
        mark = zlib.crc32(json.dumps(non_default_settings(plain(given)), sort_keys=True).encode())
        config = plain({**given, "out": str(self.out / place / f"{seed}-{mark:08x}")})
        return Job(name or f"{place}, seed {seed}", kind or place, config)

    def with_all_seeds(self) -> Plan:
        """Return the same plan with all seeds of each study."""
        return replace(self, seeds=None)

    @property
    def alterations(self) -> list[str]:
        """How the runs differ from those that may be published, in words; empty if they do not."""
        found = []
        if self.overrides:
            words = (f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in self.overrides.items())
            found.append(f"altered: {' '.join(words)}")
        if self.tuned.resolve() != TUNED.resolve():
            found.append(f"altered: tuned settings of {self.tuned}")
        if commit().endswith(CHANGED):
            found.append("from uncommitted code")
        return found

    @property
    def alteration(self) -> str:
        """All alterations in one line."""
        return "; ".join(self.alterations)


def folder_name(text: str) -> str:
    """Return a text as the name of a folder: other signs become hyphens, and a checksum replaces what is too long."""
    name = re.sub(r"[^\w=.,-]+", "-", text).strip("-")
    return f"{name[:LONGEST]}-{zlib.crc32(name.encode()):08x}" if len(name) > LONGEST else name


def separate_altered(plan: Plan, results: Path) -> tuple[Plan, Path]:
    """Redirect altered runs and their results to separate folders.

    Args:
        plan: The plan of a study.
        results: The folder of published results.

    Returns:
        The plan and the folder for its results; unchanged if nothing is altered.
    """
    if not plan.alterations:
        return plan, results
    name = folder_name(",".join(a.removeprefix("altered: ") for a in plan.alterations))
    return replace(plan, out=plan.out / ALTERED / name), results / ALTERED / name
