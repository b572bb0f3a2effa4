"""Reproduce a study: restore or make its runs, then write its result file, its table and its charts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedqhd.core.files import write_bytes
from fedqhd.studies import store
from fedqhd.studies.archive import RUNS, Archive, forget_without_models, measured_file
from fedqhd.studies.plan import ALTERED, Plan, separate_altered
from fedqhd.studies.pool import Job, JobSeries
from fedqhd.studies.study import Study, finished

Schedule = Callable[[list[JobSeries], int], int]
"""A function that runs series of jobs, given the largest number of runs, and returns how many runs failed."""
Say = Callable[[str], None]
"""A function that prints a message to the user."""


def reproduce(study: Study, plan: Plan, results: Path, schedule: Schedule, say: Say) -> int:
    """Make the missing runs of a study and write its results.

    Runs with altered settings or from uncommitted code have separate folders for runs, archive and results.

    Args:
        study: The study.
        plan: The part of it to run.
        results: The folder of the published results.
        schedule: Runs the jobs.
        say: Prints messages.

    Returns:
        How many runs failed.
    """
    plan, folder = separate_altered(plan, results)
    altered = plan.alteration
    archive = Archive(folder / RUNS, plan.out, fallback=results / RUNS if altered else None, published=not altered)
    if altered:
        say(f"{altered}: kept apart from what is published, in {folder}")
    for note in study.notes(plan, folder):
        say(f"note: {note}")
    jobs = study.source_jobs(plan)
    set_aside(archive, jobs, say)
    if found := archive.restore(jobs):
        say(f"{found} runs come from the archive")
    if study.measures:
        forget_without_models(study.jobs(plan), study.name)
    try:
        failed = schedule(*study.all_series(plan, archive, folder))
    finally:  # parallel commands may overwrite each other's lines; the last one to end stores all runs
        archive.store(jobs)
    set_aside(archive, jobs, say)
    if study.measures:
        measure(study, jobs)
        archive.store(jobs)
    collect(study, plan, folder, say)
    return failed


def set_aside(archive: Archive, jobs: list[Job], say: Say) -> None:
    """Move runs that were made by uncommitted code out of the way, and say so."""
    if count := archive.set_aside(jobs, archive.out / ALTERED / "uncommitted"):
        say(f"{count} runs were made by uncommitted code: they are now in {archive.out / ALTERED} and do not count")


def measure(study: Study, jobs: list[Job]) -> None:
    """Let a study measure those finished runs that have models and that it has not measured yet."""
    for run in finished(jobs):
        file = measured_file(run.job.folder, study.name)
        if not file.exists() and (run.job.folder / "models").exists():
            write_bytes(file, json.dumps(study.measure(run)).encode())


def collect(study: Study, plan: Plan, results: Path, say: Say) -> None:
    """Write the result file, the table and the charts of a study, made from the runs that have finished."""
    say(f"writing the results of {study.name}")
    rows = study.rows(plan)
    for row in store.merge(results, study, rows, plan.alteration):
        say(f"kept the stored row instead of a new one: {row}")
    table = store.write_table(results, study)
    drawn = study.charts(rows, results / "images") if rows else []
    written = [store.file_of(results, study.name), *([table] if table else []), *drawn]
    say(f"written: {' '.join(map(str, written))}")
