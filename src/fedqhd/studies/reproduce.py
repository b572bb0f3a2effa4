"""How a study is made: its runs, from the archive or anew; then its result file, its table and its charts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedqhd.core.files import write_bytes
from fedqhd.studies import store
from fedqhd.studies.archive import RUNS, Archive, forget_without_models, measured_file
from fedqhd.studies.plan import ALTERED, Plan, apart
from fedqhd.studies.pool import Job, JobSeries
from fedqhd.studies.study import Study, finished

Schedule = Callable[[list[JobSeries], int], int]
"""Runs all_series, of so many runs at the most, and says how many runs failed."""
Say = Callable[[str], None]


def reproduce(study: Study, plan: Plan, results: Path, schedule: Schedule, say: Say) -> int:
    """Make what is not there yet of a study's runs and write what came of them; how many runs failed.

    Altered runs, by settings or by uncommitted code, have folders of their own for runs, archive and results.
    """
    own, folder = apart(plan, results)
    altered = own.alteration
    archive = Archive(folder / RUNS, own.out, beside=results / RUNS if altered else None, published=not altered)
    if altered:
        say(f"{altered}: kept apart from what is published, in {folder}")
    for note in study.notes(own, folder):
        say(f"note: {note}")
    used = study.used(own)
    set_aside(archive, used, say)
    if found := archive.restore(used):
        say(f"{found} runs come from the archive")
    if study.measures:
        forget_without_models(study.jobs(own), study.name)
    try:
        failed = schedule(*study.all_series(own, archive, folder))
    finally:  # several of these commands at a time may write over each other's lines; who ends last has all
        archive.store(used)
    set_aside(archive, used, say)
    if study.measures:
        measure(study, used)
        archive.store(used)
    collect(study, own, folder, say)
    return failed


def set_aside(archive: Archive, jobs: list[Job], say: Say) -> None:
    if count := archive.set_aside(jobs, archive.out / ALTERED / "uncommitted"):
        say(
            f"{count} runs were made by uncommitted code: they are set aside in {archive.out / ALTERED} and not counted"
        )


def measure(study: Study, jobs: list[Job]) -> None:
    """What the study finds out with the models of runs, each time once."""
    for run in finished(jobs):
        file = measured_file(run.job.folder, study.name)
        if not file.exists() and (run.job.folder / "models").exists():
            write_bytes(file, json.dumps(study.measure(run)).encode())


def collect(study: Study, plan: Plan, results: Path, say: Say) -> None:
    """The result file, the table and the charts, of the runs that are finished."""
    say(f"making the result file of {study.name}")
    rows = study.rows(plan)
    for row in store.merge(results, study, rows, plan.alteration):
        say(f"not written over what is stored: {row}")
    table = store.write_table(results, study)
    drawn = study.charts(rows, results / "images") if rows else []
    written = [store.file_of(results, study.name), *([table] if table else []), *drawn]
    say(f"what came of it is in {' '.join(map(str, written))}")
