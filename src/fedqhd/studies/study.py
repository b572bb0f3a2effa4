"""The base class of studies: their runs, the rows made from them, a table and charts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import PLAIN, PRESETS
from fedqhd.core.protocols import Array
from fedqhd.runs.config import FIELDS, resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.studies.archive import Archive, measured_file
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job, JobSeries, single

Row = dict[str, Any]
"""A row of a result file."""
Rows = Sequence[Mapping[str, Any]]


class Run(NamedTuple):
    """A finished run: its job and its summary."""

    job: Job
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        return self.job.config.seed

    def returns(self) -> Array:
        """Return the return of every training episode of every client, (clients, episodes)."""
        return training_returns(self.job.folder, self.summary["clients"], self.summary["episodes"])

    def curve(self) -> Array:
        """Return the training return of every episode, averaged over clients, (episodes,)."""
        return self.returns().mean(axis=0)

    def measured(self, study: str) -> Any:
        """Return what a study measured with the models of the run, or None if it has not done so."""
        file = measured_file(self.job.folder, study)
        return json.loads(file.read_text()) if file.exists() else None


def finished(jobs: Iterable[Job]) -> list[Run]:
    """Return the runs of those jobs that have finished."""
    return [Run(job, s) for job in jobs if (s := job.summary())]


def column(runs: Iterable[Run], name: str, digits: int | None = None) -> list[Any]:
    """Return one value of each run's summary.

    Args:
        runs: The runs.
        name: The key of the value in the summary.
        digits: The number of decimals to round to; None leaves values as they are, 0 makes them integers.
    """
    values = [run.summary[name] for run in runs]
    return values if digits is None else [round(v, digits or None) for v in values]


def commits(runs: Iterable[Run]) -> str:
    """Return the commits that made the runs, separated by commas."""
    return ", ".join(sorted({run.summary["commit"] for run in runs}))


def seeds_in(row: Mapping[str, Any]) -> int:
    """Return how many seeds a row has. A row without "seeds" is that of one run."""
    found = row.get("seeds", 1)
    return found if isinstance(found, int) else len(found)


def flags(settings: Mapping[str, Any]) -> str:
    """Return settings as flags of the command line."""

    def text(v: Any) -> str:
        return " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v)

    return " ".join(f"--{k.replace('_', '-')} {text(v)}" for k, v in settings.items())


def command(settings: Mapping[str, Any], preset: str = PLAIN) -> str:
    """Return the command of a single run with these settings over a preset.

    Settings that do not apply to the run are left out.
    """
    c = resolve({}, preset=preset, shared=settings)
    # If all clients are alike, only the first value of a setting that is cycled over clients counts.
    given = {k: c.values[k] if FIELDS[k].metadata["cycled"] else v for k, v in settings.items() if k in c}
    return f"fedqhd train {'' if preset == PRESETS[0] else f'--preset {preset} '}{flags(given)}"


class Study:
    """The base of all studies. `fedqhd reproduce module:Class` runs a subclass of your own.

    A subclass lists its runs (`jobs`), makes rows from the finished ones (`rows`) and shows them (`table`, `charts`).
    `CellStudy` does all of this for runs that differ only in their settings.
    """

    name: ClassVar[str] = ""
    """The name on the command line and of the result file, NAME.json."""
    rank: ClassVar[int] = 100
    """Its place in lists and in RESULTS.md; low numbers come first."""
    about: ClassVar[str] = ""
    """The description in `fedqhd reproduce --list` and in the result file, one line."""
    hours: ClassVar[float] = 0.0
    """The estimated core-hours, shown as long as none of its runs are archived."""
    seeds: ClassVar[Sequence[int]] = (0, 1, 2)
    """The seeds of each run unless the plan has others."""
    key: ClassVar[Sequence[str]] = ()
    """The names of the values that identify a row."""
    in_results: ClassVar[bool] = False
    """Whether the table is part of RESULTS.md; otherwise it is written to NAME.md beside NAME.json."""
    in_all: ClassVar[bool] = False
    """Whether `fedqhd reproduce all` runs it."""
    can_collect: ClassVar[bool] = True
    """Whether rows can be made from finished runs at any time (`fedqhd reproduce --collect`)."""
    measures: ClassVar[bool] = False
    """Whether it measures something with the models of its runs (see `measure`). The archive contains no models."""
    runs_from: ClassVar[str] = ""
    """The name of the study whose runs this one uses, if it has none of its own."""
    unstored: ClassVar[Sequence[str]] = ()
    """The names of values that charts need but that are not written to the result file."""

    @property
    def run_folders(self) -> Sequence[str]:
        """The folders that contain its runs, relative to the folder of all runs."""
        return (self.name,)

    def jobs(self, plan: Plan) -> list[Job]:
        """Return the runs that the plan asks for, in the order in which they start."""
        return []

    def source_jobs(self, plan: Plan) -> list[Job]:
        """Return the runs from which rows may be made: those of `jobs`, and those of all other seeds of the study."""
        others = self.jobs(plan.with_all_seeds()) if plan.seeds is not None else []
        return [*self.jobs(plan), *others]

    def all_series(self, plan: Plan, archive: Archive, results: Path) -> tuple[list[JobSeries], int]:
        """Return the series of jobs that are to be run, and the largest number of runs in them."""
        jobs = self.jobs(plan)
        return [archive.archiving(single(job)) for job in jobs], len(jobs)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        """Return notes for the user that are printed before anything is run."""
        return []

    def measure(self, run: Run) -> Any:
        """Measure something with the models of a finished run and return it as JSON values, which are archived."""
        raise FedQHDError(f"study={self.name!r} has measures=True but no method measure(run): define it")

    def rows(self, plan: Plan) -> list[Row]:
        """Return the rows of the result file, made from those of `source_jobs` that have finished."""
        return []

    def expected_seeds(self, row: Mapping[str, Any]) -> int:
        """Return how many seeds a complete row has."""
        return len(self.seeds)

    def order(self, row: Mapping[str, Any]) -> Any:
        """Return the key by which rows are sorted in the result file; by default they keep their order."""
        return 0

    def table(self, rows: Rows) -> list[str]:
        """Return the table as lines of Markdown."""
        return []

    def appendix(self, rows: Rows) -> list[str]:
        """Return lines of Markdown for the end of RESULTS.md."""
        return []

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Draw figures to files in a folder and return their paths."""
        return []

    def incomplete(self, row: Mapping[str, Any]) -> str:
        """Return 'n of N seeds' if a row has fewer seeds than expected, else an empty string."""
        n, expected = seeds_in(row), self.expected_seeds(row)
        return f"{n} of {expected} seeds" if n < expected else ""

    def marked(self, text: str, row: Mapping[str, Any]) -> str:
        """Return the text of a table cell, with a mark if its row is incomplete."""
        missing = self.incomplete(row)
        return f"{text} ({missing})" if missing else text
