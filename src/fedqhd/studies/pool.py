"""Run many jobs in parallel, each in its own process and folder, so that a crash affects only one of them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedqhd.core.config import Config
from fedqhd.core.files import write_bytes
from fedqhd.core.length import planned, whole_run
from fedqhd.core.lines import read_complete_lines
from fedqhd.runs.commit import commit
from fedqhd.runs.folder import clear_checkpoints
from fedqhd.runs.rounds_log import NAME as ROUNDS
from fedqhd.runs.summary import NAME, read_summary

POLL = 0.2
"""Seconds between two checks for finished processes."""
GRACE = 60.0
"""Seconds that a process has to end after it was asked to, before it is killed."""


@dataclass(frozen=True)
class Job:
    """One run of a study; `name` describes it to the user."""

    name: str
    kind: str
    """Runs of the same kind take about the same time, from which the remaining time is estimated."""
    config: Config

    @property
    def folder(self) -> Path:
        return self.config.folder

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of the run, or None if it has not finished."""
        return read_summary(self.folder) if (self.folder / NAME).exists() else None

    def failure(self) -> dict[str, Any] | None:
        """Return the record of a failure, or None if the run has not failed."""
        file = self.folder / "failed.json"
        return json.loads(file.read_text()) if file.exists() and self.summary() is None else None

    def progress(self) -> float:
        """Return the share of its episodes that is recorded on disk, from 0 to 1; by steps, that of its rounds."""
        if whole_run(self.config).steps:
            return len(read_complete_lines(self.folder / ROUNDS)) / len(planned(self.config))
        file = self.folder / "metrics.jsonl"
        lines = file.read_bytes().count(b"\n") if file.exists() else 0
        return min(1.0, lines / (self.config.episodes * self.config.clients))


JobSeries = Generator[Job, dict[str, Any] | None, None]
"""A generator of jobs that run one after another. It is sent the summary of each job (None if it failed)."""


def single(job: Job) -> JobSeries:
    """Return a series of one job."""
    yield job


class Watcher:
    """Receives notice of what happens to jobs. This base class ignores it; override the methods that you need."""

    def begin(self, waiting: int) -> None:
        """Called once at the start, with the number of jobs that are waiting."""

    def started(self, job: Job) -> None:
        """Called when a job starts."""

    def finished(self, job: Job, summary: Mapping[str, Any], *, before: bool) -> None:
        """Called when a job has finished; `before` says that it had finished in an earlier session."""

    def failed(self, job: Job, error: str) -> None:
        """Called when a job has failed."""

    def busy(self, job: Job) -> None:
        """Called when a job is skipped because another process runs it."""

    def tick(self, running: Iterable[Job], waiting: Iterable[Job]) -> None:
        """Called every POLL seconds."""


@dataclass
class Running:
    """A job whose process runs, with its open log and lock files."""

    job: Job
    series: JobSeries
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    lock: IO[bytes]


def run(all_series: Iterable[JobSeries], workers: int, watcher: Watcher | None = None) -> None:
    """Run all jobs of all series. Jobs that have finished before are not run again.

    Args:
        all_series: The series of jobs.
        workers: How many jobs run at a time.
        watcher: Receives notice of what happens, or None.
    """
    watcher = watcher or Watcher()
    waiting: deque[tuple[JobSeries, Job]] = deque()
    for series in all_series:
        advance(series, next(series, None), watcher, waiting.append)
    watcher.begin(len(waiting))
    running: list[Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                series, job = waiting.popleft()
                begun = begin(series, job)
                if begun is None:  # another process runs this job
                    watcher.busy(job)
                    continue
                watcher.started(job)
                running.append(begun)
            time.sleep(POLL)
            for r in [r for r in running if r.process.poll() is not None]:
                running.remove(r)
                close(r)
                summary = r.job.summary()
                if summary is None:
                    watcher.failed(r.job, record_failure(r.job, r.process.returncode))
                else:
                    watcher.finished(r.job, summary, before=False)
                # The next job of a series goes first, so that a search is completed before others begin.
                advance(r.series, send(r.series, summary), watcher, waiting.appendleft)
            watcher.tick([r.job for r in running], [job for _, job in waiting])
    finally:
        stop(running)


def advance(series: JobSeries, job: Job | None, watcher: Watcher, put: Any) -> None:
    """Advance a series to its first unfinished job and hand it to `put`, if there is one."""
    while job is not None:
        summary = job.summary()
        if summary is None:
            put((series, job))
            return
        watcher.finished(job, summary, before=True)
        job = send(series, summary)


def send(series: JobSeries, summary: dict[str, Any] | None) -> Job | None:
    """Send a summary to a series and return its next job, or None if it has ended."""
    try:
        return series.send(summary)
    except StopIteration:
        return None


def begin(series: JobSeries, job: Job) -> Running | None:
    """Start the process of a job, or return None if another process runs the job.

    The child inherits the lock, so that it is held as long as the child lives, even if this process dies.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    lock = (job.folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    (job.folder / "failed.json").unlink(missing_ok=True)
    wanted = job.folder / "wanted.toml"
    write_bytes(wanted, job.config.to_toml().encode())
    log = (job.folder / "log.txt").open("wb")
    command = [sys.executable, "-m", "fedqhd", "train", "--config", str(wanted), "--resume"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=[lock.fileno()],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C must reach only this process, which then stops the child
    )  # fmt: skip
    return Running(job, series, process, log, lock)


def close(r: Running) -> None:
    """Close and remove the files that are needed only while the process runs."""
    for name in ("wanted.toml", "lock"):
        (r.job.folder / name).unlink(missing_ok=True)
    if r.job.summary() is not None:
        clear_checkpoints(r.job.folder)  # studies never extend a run, and hundreds of checkpoints would fill a disk
    r.log.close()
    r.lock.close()


def record_failure(job: Job, code: int) -> str:
    """Write failed.json for a job whose process ended with an exit code, and return the error."""
    lines = (job.folder / "log.txt").read_text(errors="replace").strip().splitlines()
    error = lines[-1].strip() if lines else f"ended with exit code {code} and no output"
    if code < 0:
        error = f"killed by {signal.Signals(-code).name}"
    record = {"error": error, "code": code, "commit": commit(), "seed": job.config.seed}
    write_bytes(job.folder / "failed.json", (json.dumps(record, indent=1) + "\n").encode())
    return error


def stop(running: Iterable[Running]) -> None:
    """Stop all running processes. Each job resumes from its last round the next time it is run."""
    running = list(running)
    for r in running:
        r.process.terminate()
    for r in running:
        try:
            r.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            r.process.kill()
            r.process.wait()
        close(r)
