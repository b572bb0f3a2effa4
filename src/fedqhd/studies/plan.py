"""What is asked of a study: all of it or a part, and whether its settings or its code were altered."""

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
from fedqhd.studies.archive import CHANGED, recorded
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import ENVS, METHODS, Cell, cells, plain, seeds, settings

ALTERED = "altered"
"""The folder, in that of the results and in that of the runs, which keeps altered runs apart from published ones."""
LONGEST = 100
"""Characters of the name of a folder of altered runs; the rest of a longer one is a checksum."""


@dataclass(frozen=True)
class Plan:
    """What is asked for: everything that a study has, or a part of it."""

    presets: Sequence[str] = PRESETS
    methods: Sequence[str] = METHODS
    envs: Sequence[str] = ENVS
    settings: Sequence[str] = SETTINGS
    seeds: Sequence[int] | None = None
    """None: as many as the study has."""
    out: Path = Path("runs/reproduce")
    tuned: Path = TUNED
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings that stand over all others, for a smaller copy of a study."""

    @property
    def cells(self) -> list[Cell]:
        """The chosen cells of the paper's main table."""
        return cells(self.methods, self.envs, self.settings)

    def seeds_of(self, preset: str, cell: Cell) -> Sequence[int]:
        return seeds(preset, cell) if self.seeds is None else self.seeds

    def own(self, preset: str, cell: Cell) -> dict[str, Any]:
        """What a run of a cell of the main table is given, over the environment's defaults."""
        return {**settings(preset, cell, self.tuned), **self.others}

    def has(self, own: Mapping[str, Any]) -> bool:
        """Whether a run of these settings was asked for. Environments that the paper does not have always are."""
        env = own.get("env", ENVS[0])
        if env in ENVS and env not in self.envs:
            return False
        return own.get("setting", SETTINGS[0]) in self.settings and own.get("method", "fedqhd") in self.methods

    def job(self, place: str, own: Mapping[str, Any], seed: int, name: str = "", kind: str = "") -> Job:
        """One run in a folder of its own: other settings, another folder.

        `place` is the folder, relative to that of all runs, of the runs that differ in the seed alone; `own` are the
        settings over the environment's defaults; `name` is what people read, and runs of one `kind` take about as long.
        """
        given = {"engine": "local", **own, "seed": seed}
        mark = zlib.crc32(json.dumps(recorded(plain(given)), sort_keys=True).encode())
        config = plain({**given, "out": str(self.out / place / f"{seed}-{mark:08x}")})
        return Job(name or f"{place}, seed {seed}", kind or place, config)

    def complete(self) -> Plan:
        """The same with all seeds."""
        return replace(self, seeds=None)

    @property
    def alterations(self) -> list[str]:
        """How the runs differ from those that may be published, in words; empty where they do not."""
        found = []
        if self.others:
            words = (f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in self.others.items())
            found.append(f"altered: {' '.join(words)}")
        if self.tuned.resolve() != TUNED.resolve():
            found.append(f"altered: tuned settings of {self.tuned}")
        if commit().endswith(CHANGED):
            found.append("from uncommitted code")
        return found

    @property
    def alteration(self) -> str:
        return "; ".join(self.alterations)


def apart(plan: Plan, results: Path) -> tuple[Plan, Path]:
    """The plan and the folder of its results, or, for altered runs, both in folders of their own."""
    if not plan.alterations:
        return plan, results
    name = re.sub(r"[^\w=.,-]+", "-", ",".join(a.removeprefix("altered: ") for a in plan.alterations)).strip("-")
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}-{zlib.crc32(name.encode()):08x}"
    return replace(plan, out=plan.out / ALTERED / name), results / ALTERED / name
