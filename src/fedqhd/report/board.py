"""The progress of a study in the terminal: how many runs are done, running and left, and how long they will take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from fedqhd.engines import cores
from fedqhd.report.terminal import Screen, clock
from fedqhd.studies import pool
from fedqhd.studies.pool import Job, JobSeries, Watcher

EVERY = 60.0
"""Seconds between two lines of progress if the output is not a terminal."""


class Board(Screen, Watcher):
    """Shows the progress of many runs, as a live table in a terminal and as plain lines elsewhere.

    Args:
        console: Where to print.
        total: How many runs there are to make, including those of searches that are not yet decided.
        workers: How many runs are made at a time.
    """

    def __init__(self, console: Console, total: int, workers: int) -> None:
        super().__init__(console, per_second=2)
        self.total, self.workers = total, workers
        self.done = self.fails = 0
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.begun: dict[Path, tuple[float, float]] = {}
        """For each running job, when it started and the share of its episodes that was already done then."""
        self.last_line = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line of plain text."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, waiting: int) -> None:
        # The total is an upper bound: a search may end with fewer runs than it could have made.
        to_go = max(self.total - self.done, waiting) if waiting else 0
        self.say(f"{self.done} runs are done, {to_go} to go, {self.workers} at a time")

    def started(self, job: Job) -> None:
        self.begun[job.folder] = time.monotonic(), job.progress()

    def finished(self, job: Job, summary: Mapping[str, Any], *, before: bool) -> None:
        self.done += 1
        self.seconds[job.kind].append(summary["wall_seconds"])
        if not before:
            final, greedy = summary["final_return"], summary["greedy_return"]
            self.say(f"{job.name}: final {final:.1f}, greedy {greedy:.1f}, {summary['cpu_seconds']:.0f} CPU s")

    def failed(self, job: Job, error: str) -> None:
        self.fails += 1
        self.say(f"{job.name}: FAILED, {error} (see {job.folder}/log.txt)")

    def busy(self, job: Job) -> None:
        self.total -= 1
        self.say(f"{job.name}: skipped, because another process is running it")

    def projected(self, job: Job) -> float | None:
        """Return how many seconds a running job will take in all at its present pace, or None if it is too early."""
        at, share = self.begun[job.folder]
        done = job.progress() - share
        return (time.monotonic() - at) / done if done > 0.05 else None

    def left(self, running: Sequence[Job], waiting: Sequence[Job]) -> float | None:
        """Estimate the seconds until all runs are done, or return None if nothing is known yet.

        A run is expected to take the mean time of its kind or, if there is none, of all runs.
        """
        seconds = {kind: list(times) for kind, times in self.seconds.items()}
        for job in running:
            if (guess := self.projected(job)) is not None:
                seconds.setdefault(job.kind, []).append(guess)
        every = [s for kind in seconds.values() for s in kind]
        if not every:
            return None
        mean = sum(every) / len(every)
        means = {kind: sum(s) / len(s) for kind, s in seconds.items()}
        unknown = max(0, self.total - self.done - self.fails - len(running) - len(waiting))
        work = sum(means.get(job.kind, mean) * (1 - job.progress()) for job in running)
        work += sum(means.get(job.kind, mean) for job in waiting) + unknown * mean
        return work / self.workers

    def tick(self, running: Iterable[Job], waiting: Iterable[Job]) -> None:
        running, waiting = list(running), list(waiting)
        if not self.live and (time.monotonic() - self.last_line < EVERY or not running):
            return
        self.last_line = time.monotonic()
        seconds = self.left(running, waiting)
        to_go = max(self.total - self.done - self.fails - len(running), len(waiting))
        line = f"{self.done} done, {len(running)} running, {to_go} left"
        line += f", {self.fails} failed" if self.fails else ""
        line += f"; about {clock(seconds)} to go" if seconds is not None else ""
        if self.live:
            table = Table.grid(padding=(0, 2))
            for job in running:
                table.add_row(f"{job.progress():4.0%}", job.name)
            self.live.update(Group(Text(line), table))
        else:
            self.say(line)


def run_all_series(all_series: Iterable[JobSeries], total: int, workers: int, console: Console) -> int:
    """Make all runs, show their progress, and return how many failed.

    Args:
        all_series: The series of jobs.
        total: The largest number of runs in them.
        workers: How many runs are made at a time; 0 for one per core.
        console: Where to show the progress.
    """
    workers = workers or cores()
    try:
        with Board(console, total, workers) as board:
            pool.run(all_series, workers, board)
    except KeyboardInterrupt as stop:
        stop.add_note("; the same command continues every run from its last round")
        raise
    return board.fails
