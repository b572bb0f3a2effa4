"""Finished runs in a form to commit: settings, seed, commit and what their folders say, without models.

A run is found in it by its settings and its seed, so whoever has the archive need not run it again.
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
from fedqhd.runs.config import FIELDS
from fedqhd.runs.rounds_log import NAME as ROUNDS
from fedqhd.studies.pool import Job, JobSeries, send

METRICS = "metrics.jsonl"
RUNS = "runs"
"""The folder of the archive in that of the results."""
CHANGED = "-changed"
"""How the commit of a run from uncommitted code ends."""
Line = Mapping[str, Any]


def settings_of(config: Config) -> dict[str, Any]:
    """All settings that a run's outcome depends on, besides its seed, as JSON has them."""
    every = {k: v for k, v in config.values.items() if k not in ("seed", "engine", "out")}
    return json.loads(json.dumps(every))


def default_of(name: str) -> Any:
    """What a setting is where none is recorded, as JSON has it."""
    return json.loads(json.dumps(FIELDS[name].default))


def recorded(config: Config) -> dict[str, Any]:
    """The settings of a run that differ from the defaults."""
    return {k: v for k, v in settings_of(config).items() if v != default_of(k)}


def find(lines: Iterable[dict[str, Any]], config: Config, commit: str = "") -> dict[str, Any] | None:
    """The archived run with this seed and these settings, of this commit, or the newest where none is given.

    A setting that is not recorded had its default.
    """
    wanted = settings_of(config)

    def had(line: Line, name: str) -> Any:
        value = line["settings"].get(name, default_of(name))
        # Where all clients are alike, the first of what is cycled counts; older records have all of it.
        return value[: len(wanted[name])] if FIELDS[name].metadata["cycled"] else value

    found = None
    for line in lines:
        same = line["seed"] == config.seed and (not commit or line["commit"] == commit)
        if same and all(had(line, name) == value for name, value in wanted.items()):
            found = line
    return found


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_lines(file: Path, rows: Iterable[Line]) -> None:
    write_bytes(file, "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode())


def short(x: float) -> float:
    """To a tenth, and without it where it is none: there are millions of them."""
    return int(x) if x == int(x) else round(x, 1)


def measured_file(folder: Path, study: str) -> Path:
    """Where a run's folder keeps what a study measured with the run's models."""
    return folder / f"measured-{study}.json"


def measured(folder: Path) -> dict[str, Any]:
    """What studies measured with a run's models, by the name of the study."""
    files = sorted(folder.glob("measured-*.json"))
    return {f.stem.removeprefix("measured-"): json.loads(f.read_text()) for f in files}


def packed(job: Job) -> dict[str, Any]:
    """A run in a line: its settings, its summary, each client's returns by round, what each round took."""
    returns: dict[str, list[list[float]]] = {}
    for row in read_lines(job.folder / METRICS):
        rounds = returns.setdefault(str(row["client"]), [])
        rounds += [[] for _ in range(len(rounds), row["round"] + 1)]
        rounds[row["round"]].append(short(row["return"]))
    summary = json.loads((job.folder / "summary.json").read_text())
    found = {
        "seed": job.config.seed, "commit": summary["commit"], "settings": recorded(job.config), "summary": summary,
        "returns": returns, "cpu_seconds": [row["cpu_seconds"] for row in read_lines(job.folder / ROUNDS)],
    }  # fmt: skip
    extra = measured(job.folder)
    return {**found, "extra": extra} if extra else found


def metrics(returns: Mapping[str, list[list[float]]]) -> Iterator[dict[str, Any]]:
    for client, rounds in returns.items():
        played = ((k, value) for k, values in enumerate(rounds) for value in values)
        for episode, (k, value) in enumerate(played):
            yield {"round": k, "client": int(client), "episode": episode, "return": value}


def unpack(line: Line, folder: Path) -> None:
    """The folder of a run, as far as the archive has it. The summary comes last: with it a run counts as finished."""
    write_lines(folder / METRICS, metrics(line["returns"]))
    write_lines(folder / ROUNDS, ({"round": k, "cpu_seconds": x} for k, x in enumerate(line["cpu_seconds"])))
    for study, extra in line.get("extra", {}).items():
        write_bytes(measured_file(folder, study), json.dumps(extra).encode())
    write_bytes(folder / "summary.json", (json.dumps(line["summary"], indent=2) + "\n").encode())


def forget_without_models(jobs: Iterable[Job], study: str) -> None:
    """Runs from an archive have no models: those that the study has not measured yet are run again."""
    for folder in {job.folder for job in jobs}:
        if not (folder / "models").exists() and not measured_file(folder, study).exists():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Archive:
    """The runs in `home`, a file for each cell, which later runs are added to.

    `out` is the folder that all runs have theirs in. `beside` is a second archive, in which runs are found but which
    is left as it is. With `published`, runs from uncommitted code are not taken in.
    """

    home: Path
    out: Path
    beside: Path | None = None
    published: bool = True

    def place(self, job: Job) -> Path:
        """The file of a run, relative to the archive: that of its cell, with runs of whatever settings."""
        cell = job.folder.parent.relative_to(self.out)
        return cell.with_name(f"{cell.name}.jsonl")

    def by_place(self, jobs: Iterable[Job]) -> dict[Path, list[Job]]:
        found: dict[Path, dict[Path, Job]] = {}
        for job in jobs:
            found.setdefault(self.place(job), {})[job.folder] = job
        return {place: list(here.values()) for place, here in found.items()}

    def restore(self, jobs: Iterable[Job]) -> int:
        """Make the folders of those runs that are archived and not here; how many."""
        found = 0
        for place, missing in self.by_place(job for job in jobs if job.summary() is None).items():
            lines = [line for home in (self.home, self.beside) if home for line in read_lines(home / place)]
            for job in missing:
                if (line := find(lines, job.config)) is not None:
                    unpack(line, job.folder)
                    found += 1
        return found

    def store(self, jobs: Iterable[Job]) -> None:
        """Add those runs that are finished and new, and to those that are there what was measured since."""
        for place, here in self.by_place(job for job in jobs if self.takes(job)).items():
            lines, before = read_lines(self.home / place), read_lines(self.beside / place) if self.beside else []
            changed = False
            for job in here:
                commit = (job.summary() or {})["commit"]
                old = find(lines, job.config, commit)
                known = old or find(before, job.config, commit)
                if known is not None and known.get("extra", {}).keys() >= measured(job.folder).keys():
                    continue
                if old is None:
                    lines.append(packed(job))
                else:
                    old["extra"] = {**old.get("extra", {}), **measured(job.folder)}
                changed = True
            if changed:
                write_lines(self.home / place, sorted(lines, key=lambda x: x["seed"]))

    def takes(self, job: Job) -> bool:
        summary = job.summary()
        return summary is not None and not (self.published and summary["commit"].endswith(CHANGED))

    def kept(self, series: JobSeries, *, restore: bool = False) -> JobSeries:
        """Runs that are archived as soon as they are finished; with `restore`, those that are archived are not run."""
        job = next(series, None)
        while job is not None:
            if restore:
                self.restore([job])
            summary = yield job
            self.store([job])
            job = send(series, summary)

    def set_aside(self, jobs: Iterable[Job], altered: Path) -> int:
        """Move runs that uncommitted code finished to a folder of their own, so that they are made again; how many."""
        folders = {job.folder for job in jobs if job.summary() is not None and not self.takes(job)}
        for folder in folders:
            target = altered / folder.relative_to(self.out)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
        return len(folders)

    def core_hours(self, places: Iterable[str]) -> float:
        """CPU hours of all archived runs of these folders."""
        files = (f for place in places for f in (self.home / place).glob("*.jsonl"))
        return sum(line["summary"]["cpu_seconds"] for f in files for line in read_lines(f)) / 3600
