"""The archive: finished runs in a compact form that can be committed, without their models.

A run is found by its settings and its seed, so that archived runs need not be repeated on another machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.files import write_bytes
from fedqhd.core.length import BY_STEPS
from fedqhd.core.lines import Line, read_lines, write_lines
from fedqhd.runs.config import FIELDS
from fedqhd.runs.metrics import NAME as METRICS
from fedqhd.runs.rounds_log import NAME as ROUNDS
from fedqhd.runs.summary import read_summary
from fedqhd.studies.pool import Job, JobSeries, send

RUNS = "runs"
"""The folder of the archive, in the folder of the results."""
CHANGED = "-changed"
"""The suffix of the commit of runs that were made by uncommitted code."""
COMPACT = (",", ":")
"""Separators of JSON without spaces: archives are committed."""
"""An archived run: one line of a JSONL file."""


def settings_of(config: Config) -> dict[str, Any]:
    """Return all settings on which the outcome of a run depends, except its seed, as JSON values."""
    every = {k: v for k, v in config.values.items() if k not in ("seed", "engine", "loop", "out")}
    return json.loads(json.dumps(every))


def default_of(name: str) -> Any:
    """Return the default of a setting as a JSON value."""
    return json.loads(json.dumps(FIELDS[name].default))


def non_default_settings(config: Config) -> dict[str, Any]:
    """Return the settings of a run that differ from the defaults, as JSON values."""
    return {k: v for k, v in settings_of(config).items() if v != default_of(k)}


def find(lines: Iterable[dict[str, Any]], config: Config, commit: str = "") -> dict[str, Any] | None:
    """Find an archived run with the seed and the settings of a configuration.

    Args:
        lines: The archived runs. A setting that is not recorded had its default.
        config: The configuration.
        commit: The commit that made the run, or "" for any; of several runs, the last is returned.

    Returns:
        The archived run, or None if there is none.
    """
    wanted = {**dict.fromkeys(BY_STEPS, 0), **settings_of(config)}  # runs by steps record no episodes

    def had(line: Line, name: str) -> Any:
        value = line["settings"].get(name, default_of(name))
        # If all clients are alike, only the first value of a cycled setting counts, but older records contain all.
        return value[: len(wanted[name])] if FIELDS[name].metadata["cycled"] else value

    found = None
    for line in lines:
        same = line["seed"] == config.seed and (not commit or line["commit"] == commit)
        if same and all(had(line, name) == value for name, value in wanted.items()):
            found = line
    return found


def rounded(x: float) -> float:
    """Round a return to a tenth, and to an integer if it is one: the archive contains millions of returns."""
    return int(x) if x == int(x) else round(x, 1)


def measured_file(folder: Path, study: str) -> Path:
    """Return the file, in the folder of a run, with what a study measured with its models."""
    return folder / f"measured-{study}.json"


def measured(folder: Path) -> dict[str, Any]:
    """Return everything that studies measured with the models of a run, by the name of the study."""
    files = sorted(folder.glob("measured-*.json"))
    return {f.stem.removeprefix("measured-"): json.loads(f.read_text()) for f in files}


def pack(job: Job) -> dict[str, Any]:
    """Return a finished run as a line of the archive: settings, summary, returns and CPU seconds by round."""
    returns: dict[str, list[list[float]]] = {}
    for row in read_lines(job.folder / METRICS):
        rounds = returns.setdefault(str(row["client"]), [])
        rounds += [[] for _ in range(len(rounds), row["round"] + 1)]
        rounds[row["round"]].append(rounded(row["return"]))
    summary = read_summary(job.folder)
    found = {
        "seed": job.config.seed, "commit": summary["commit"], "settings": non_default_settings(job.config),
        "summary": summary, "returns": returns,
        "cpu_seconds": [row["cpu_seconds"] for row in read_lines(job.folder / ROUNDS)],
    }  # fmt: skip
    extra = measured(job.folder)
    return {**found, "extra": extra} if extra else found


def metrics(returns: Mapping[str, list[list[float]]]) -> Iterator[dict[str, Any]]:
    """Yield the lines of metrics.jsonl from the returns of an archived run, by client and round."""
    for client, rounds in returns.items():
        played = ((k, value) for k, values in enumerate(rounds) for value in values)
        for episode, (k, value) in enumerate(played):
            yield {"round": k, "client": int(client), "episode": episode, "return": value}


def unpack(line: Line, folder: Path) -> None:
    """Restore the folder of an archived run, without models. The summary, which marks it as done, is written last."""
    write_lines(folder / METRICS, metrics(line["returns"]), COMPACT)
    write_lines(folder / ROUNDS, ({"round": k, "cpu_seconds": x} for k, x in enumerate(line["cpu_seconds"])), COMPACT)
    for study, extra in line.get("extra", {}).items():
        write_bytes(measured_file(folder, study), json.dumps(extra).encode())
    write_bytes(folder / "summary.json", (json.dumps(line["summary"], indent=2) + "\n").encode())


def forget_without_models(jobs: Iterable[Job], study: str) -> None:
    """Delete the folders of runs that have neither models nor measurements of a study, so that they are run again."""
    for folder in {job.folder for job in jobs}:
        if not (folder / "models").exists() and not measured_file(folder, study).exists():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Archive:
    """An archive of runs, with one file for each cell.

    Args:
        home: The folder of the archive.
        out: The folder of all runs.
        fallback: A second archive, from which runs are restored but to which none are added.
        published: Whether to refuse runs that were made by uncommitted code.
    """

    home: Path
    out: Path
    fallback: Path | None = None
    published: bool = True

    def place(self, job: Job) -> Path:
        """Return the file of a run, relative to the archive: that of its cell, which holds runs with any settings."""
        cell = job.folder.parent.relative_to(self.out)
        return cell.with_name(f"{cell.name}.jsonl")

    def by_place(self, jobs: Iterable[Job]) -> dict[Path, list[Job]]:
        """Group runs by their file, each run once."""
        found: dict[Path, dict[Path, Job]] = {}
        for job in jobs:
            found.setdefault(self.place(job), {})[job.folder] = job
        return {place: list(here.values()) for place, here in found.items()}

    def restore(self, jobs: Iterable[Job]) -> int:
        """Restore the folders of those runs that are archived but not present, and return how many."""
        found = 0
        for place, missing in self.by_place(job for job in jobs if job.summary() is None).items():
            lines = [line for home in (self.home, self.fallback) if home for line in read_lines(home / place)]
            for job in missing:
                if (line := find(lines, job.config)) is not None:
                    unpack(line, job.folder)
                    found += 1
        return found

    def store(self, jobs: Iterable[Job]) -> None:
        """Add finished runs that are not archived yet, and new measurements of those that are."""
        for place, here in self.by_place(job for job in jobs if self.accepts(job)).items():
            lines, before = read_lines(self.home / place), read_lines(self.fallback / place) if self.fallback else []
            changed = False
            for job in here:
                commit = (job.summary() or {})["commit"]
                old = find(lines, job.config, commit)
                known = old or find(before, job.config, commit)
                if known is not None and known.get("extra", {}).keys() >= measured(job.folder).keys():
                    continue
                if old is None:
                    lines.append(pack(job))
                else:
                    old["extra"] = {**old.get("extra", {}), **measured(job.folder)}
                changed = True
            if changed:
                write_lines(self.home / place, sorted(lines, key=lambda x: x["seed"]), COMPACT)

    def accepts(self, job: Job) -> bool:
        """Return whether a run has finished and may be archived."""
        summary = job.summary()
        return summary is not None and not (self.published and summary["commit"].endswith(CHANGED))

    def archiving(self, series: JobSeries, *, restore: bool = False) -> JobSeries:
        """Archive each run of a series as soon as it has finished.

        Args:
            series: The series of jobs.
            restore: Whether to restore runs from the archive instead of running them.
        """
        job = next(series, None)
        while job is not None:
            if restore:
                self.restore([job])
            summary = yield job
            self.store([job])
            job = send(series, summary)

    def set_aside(self, jobs: Iterable[Job], altered: Path) -> int:
        """Move runs that were made by uncommitted code out of the way, so that they are run again.

        Args:
            jobs: The runs.
            altered: The folder to move them to.

        Returns:
            How many runs were moved.
        """
        folders = {job.folder for job in jobs if job.summary() is not None and not self.accepts(job)}
        for folder in folders:
            target = altered / folder.relative_to(self.out)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
        return len(folders)

    def core_hours(self, places: Iterable[str]) -> float:
        """Return the CPU hours of all archived runs in these folders."""
        files = (f for place in places for f in (self.home / place).glob("*.jsonl"))
        return sum(line["summary"]["cpu_seconds"] for f in files for line in read_lines(f)) / 3600
