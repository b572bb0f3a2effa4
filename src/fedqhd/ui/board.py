"""How many runs at once look in the terminal: what is done, running and left, and for how long."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from fedqhd.report.terminal import Screen, clock
from fedqhd.studies.pool import Job, Watcher

EVERY = 60.0
"""Seconds between two lines where there is no screen."""


class Board(Screen, Watcher):
    """`total` counts the runs of searches, too, that are not known yet."""

    def __init__(self, console: Console, total: int, workers: int) -> None:
        super().__init__(console, per_second=2)
        self.total, self.workers = total, workers
        self.done = self.fails = 0
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.begun: dict[Path, tuple[float, float]] = {}
        """When each run started, and how far it was then."""
        self.said = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, waiting: int) -> None:
        # A search that has ended may have needed fewer runs than it might have.
        to_go = max(self.total - self.done, waiting) if waiting else 0
        self.say(f"{self.done} runs are there, {to_go} to go, {self.workers} at a time")

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
        self.say(f"{job.name}: another process has it in hand, left to it")

    def projected(self, job: Job) -> float | None:
        """Seconds that a running one will have taken, if it goes on as it does."""
        at, share = self.begun[job.folder]
        done = job.progress() - share
        return (time.monotonic() - at) / done if done > 0.05 else None

    def left(self, running: Sequence[Job], waiting: Sequence[Job]) -> float | None:
        """Seconds until all is done: runs take as long as those of their kind did, or as all did."""
        seconds = {kind: list(all_of_it) for kind, all_of_it in self.seconds.items()}
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
        if not self.live and (time.monotonic() - self.said < EVERY or not running):
            return
        self.said = time.monotonic()
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
