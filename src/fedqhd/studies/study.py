"""What a study is: its runs, the rows that come of them, its table, its charts."""

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
Rows = Sequence[Mapping[str, Any]]


class Run(NamedTuple):
    """A finished run: its job and its summary."""

    job: Job
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        return self.job.config.seed

    def returns(self) -> Array:
        """The return of every training episode of every client, (clients, episodes)."""
        return training_returns(self.job.folder, self.summary["clients"], self.summary["episodes"])

    def curve(self) -> Array:
        """The training return of every episode, mean of the clients."""
        return self.returns().mean(axis=0)

    def measured(self, study: str) -> Any:
        """What a study measured with the run's models, or None where it has not."""
        file = measured_file(self.job.folder, study)
        return json.loads(file.read_text()) if file.exists() else None


def finished(jobs: Iterable[Job]) -> list[Run]:
    return [Run(job, s) for job in jobs if (s := job.summary())]


def column(runs: Iterable[Run], name: str, digits: int | None = None) -> list[Any]:
    """A number of every run's summary, rounded to so many digits: as it is with None, a whole number with 0."""
    values = [run.summary[name] for run in runs]
    return values if digits is None else [round(v, digits or None) for v in values]


def commits(runs: Iterable[Run]) -> str:
    return ", ".join(sorted({run.summary["commit"] for run in runs}))


def seeds_in(row: Mapping[str, Any]) -> int:
    """How many seeds a row has; a row that does not count them is of one run."""
    found = row.get("seeds", 1)
    return found if isinstance(found, int) else len(found)


def flags(own: Mapping[str, Any]) -> str:
    """Settings as the command line takes them."""

    def text(v: Any) -> str:
        return " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v)

    return " ".join(f"--{k.replace('_', '-')} {text(v)}" for k, v in own.items())


def command(own: Mapping[str, Any], preset: str = PLAIN) -> str:
    """The command of one run of these settings by itself, over a preset, without those that would do nothing in it."""
    c = resolve({}, preset=preset, shared=own)
    # Where all clients are alike, the first of what is cycled over them counts.
    given = {k: c.values[k] if FIELDS[k].metadata["cycled"] else v for k, v in own.items() if k in c}
    return f"fedqhd train {'' if preset == PRESETS[0] else f'--preset {preset} '}{flags(given)}"


class Study:
    """One table or figure: subclass it in a file of its own and `fedqhd reproduce module:Class` runs it.

    Say which runs it needs (`jobs`), which rows come of them (`rows`) and how they are shown (`table`, `charts`);
    `CellStudy` has all of this for runs that differ in their settings alone.
    """

    name: ClassVar[str] = ""
    """On the command line, and of the result file NAME.json."""
    rank: ClassVar[int] = 100
    """Its place in lists and in RESULTS.md: low numbers come first."""
    about: ClassVar[str] = ""
    """One line for `fedqhd reproduce --list`."""
    hours: ClassVar[float] = 0.0
    """Estimated core-hours, for where no runs of it are archived."""
    seeds: ClassVar[Sequence[int]] = (0, 1, 2)
    key: ClassVar[Sequence[str]] = ()
    """The names of the values by which rows are told apart."""
    in_results: ClassVar[bool] = False
    """Whether the table is a part of RESULTS.md; else it has a file of its own, NAME.md beside NAME.json."""
    in_all: ClassVar[bool] = False
    """Whether `fedqhd reproduce all` runs it."""
    can_collect: ClassVar[bool] = True
    """Whether its rows can be made of finished runs at any time."""
    measures: ClassVar[bool] = False
    """Whether it measures something with the models of its runs (see `measure`), which no archive has."""
    shares: ClassVar[str] = ""
    """The study whose runs these are, where it has none of its own."""
    unstored: ClassVar[Sequence[str]] = ()
    """Values of rows that charts need and the result file does without."""

    @property
    def places(self) -> Sequence[str]:
        """The folders, in that of all runs, that its runs are in."""
        return (self.name,)

    def jobs(self, plan: Plan) -> list[Job]:
        """The runs to make, in the order in which they are begun."""
        return []

    def used(self, plan: Plan) -> list[Job]:
        """The runs that rows are made of: also those of seeds that were not asked for, where they are finished."""
        every = self.jobs(plan.complete()) if plan.seeds is not None else []
        return [*self.jobs(plan), *every]

    def all_series(self, plan: Plan, archive: Archive, results: Path) -> tuple[list[JobSeries], int]:
        """What the scheduler runs, and how many runs that may be."""
        jobs = self.jobs(plan)
        return [archive.kept(single(job)) for job in jobs], len(jobs)

    def notes(self, plan: Plan, results: Path) -> list[str]:
        """What should be said before anything is run."""
        return []

    def measure(self, run: Run) -> Any:
        """What is to be found out with a finished run's models; it is kept in its folder and in the archive."""
        raise FedQHDError(f"study={self.name!r} measures something with its runs' models: say what in measure(run)")

    def rows(self, plan: Plan) -> list[Row]:
        """A row for each thing that was measured, of the finished runs among `used`."""
        return []

    def meant(self, row: Mapping[str, Any]) -> int:
        """How many seeds a row has when it is complete."""
        return len(self.seeds)

    def order(self, row: Mapping[str, Any]) -> Any:
        """By what rows are sorted in the result file; by default they stay as they come."""
        return 0

    def table(self, rows: Rows) -> list[str]:
        """Lines of Markdown."""
        return []

    def appendix(self, rows: Rows) -> list[str]:
        """Lines of Markdown for the end of RESULTS.md."""
        return []

    def charts(self, rows: Rows, folder: Path) -> list[Path]:
        """Draw pictures into a folder; which."""
        return []

    def incomplete(self, row: Mapping[str, Any]) -> str:
        """'n of N seeds' where a row has fewer seeds than it should, else nothing."""
        n, meant = seeds_in(row), self.meant(row)
        return f"{n} of {meant} seeds" if n < meant else ""

    def marked(self, text: str, row: Mapping[str, Any]) -> str:
        """A cell of a table, with a mark where its row is incomplete."""
        missing = self.incomplete(row)
        return f"{text} ({missing})" if missing else text
