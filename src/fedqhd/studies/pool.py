"""Many runs, one a core: each a process of its own and a folder of its own, so that what dies takes nothing with it."""

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
from fedqhd.runs.commit import commit

POLL = 0.2
GRACE = 60.0
"""Seconds that a run is given to end in good order."""


@dataclass(frozen=True)
class Job:
    """One run, under a name that people read."""

    name: str
    kind: str
    """Runs of one kind take about as long."""
    config: Config

    @property
    def folder(self) -> Path:
        return self.config.folder

    def summary(self) -> dict[str, Any] | None:
        """What came out, if it is finished."""
        file = self.folder / "summary.json"
        return json.loads(file.read_text()) if file.exists() else None

    def failure(self) -> dict[str, Any] | None:
        """What went wrong, if it was tried and failed."""
        file = self.folder / "failed.json"
        return json.loads(file.read_text()) if file.exists() and self.summary() is None else None

    def progress(self) -> float:
        """The share of its episodes that is on the disk."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_bytes().count(b"\n") if file.exists() else 0
        return min(1.0, lines / (self.config.episodes * self.config.clients))


JobSeries = Generator[Job, dict[str, Any] | None, None]
"""Runs that follow one another: it is sent each one's summary (None: it failed) and says which comes next."""


def single(job: Job) -> JobSeries:
    yield job


class Watcher:
    """Who wants to know how it goes; this one does nothing with it."""

    def begin(self, waiting: int) -> None: ...
    def started(self, job: Job) -> None: ...
    def finished(self, job: Job, summary: Mapping[str, Any], *, before: bool) -> None: ...
    def failed(self, job: Job, error: str) -> None: ...
    def busy(self, job: Job) -> None: ...
    def tick(self, running: Iterable[Job], waiting: Iterable[Job]) -> None: ...


@dataclass
class Running:
    job: Job
    series: JobSeries
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    lock: IO[bytes]


def run(all_series: Iterable[JobSeries], workers: int, watcher: Watcher | None = None) -> None:
    """All runs of all series, `workers` at a time; what is finished already is taken as it is."""
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
                if begun is None:  # another of us has it in hand
                    watcher.busy(job)
                    continue
                watcher.started(job)
                running.append(begun)
            time.sleep(POLL)
            for r in [r for r in running if r.process.poll() is not None]:
                running.remove(r)
                close(r)
                came = r.job.summary()
                if came is None:
                    watcher.failed(r.job, record_failure(r.job, r.process.returncode))
                else:
                    watcher.finished(r.job, came, before=False)
                # What goes on comes first: a search is not left half-way while others begin.
                advance(r.series, send(r.series, came), watcher, waiting.appendleft)
            watcher.tick([r.job for r in running], [job for _, job in waiting])
    finally:
        stop(running)


def advance(series: JobSeries, job: Job | None, watcher: Watcher, put: Any) -> None:
    """Past all runs that are finished, to the first that is not."""
    while job is not None:
        came = job.summary()
        if came is None:
            put((series, job))
            return
        watcher.finished(job, came, before=True)
        job = send(series, came)


def send(series: JobSeries, came: dict[str, Any] | None) -> Job | None:
    try:
        return series.send(came)
    except StopIteration:
        return None


def begin(series: JobSeries, job: Job) -> Running | None:
    """Start a run, or None where somebody has it in hand: the lock is the child's too, and lives as long as it does."""
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
        start_new_session=True,  # Ctrl-C is for us: we end it, in good order
    )  # fmt: skip
    return Running(job, series, process, log, lock)


def close(r: Running) -> None:
    for name in ("wanted.toml", "lock"):
        (r.job.folder / name).unlink(missing_ok=True)
    r.log.close()
    r.lock.close()


def record_failure(job: Job, code: int) -> str:
    lines = (job.folder / "log.txt").read_text(errors="replace").strip().splitlines()
    error = lines[-1].strip() if lines else f"ended with code {code} and said nothing"
    if code < 0:
        error = f"killed by {signal.Signals(-code).name}"
    what = {"error": error, "code": code, "commit": commit(), "seed": job.config.seed}
    write_bytes(job.folder / "failed.json", (json.dumps(what, indent=1) + "\n").encode())
    return error


def stop(running: Iterable[Running]) -> None:
    """End what runs; each goes on from its last round the next time."""
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
