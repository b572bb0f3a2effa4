"""How many runs at once look in the terminal: what is done, running and left, and for how long."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedqhd.experiment.pool import Job, Watcher
from fedqhd.report.terminal import clock

EVERY = 60.0
"""Seconds between two lines where there is no screen."""


class Board(Watcher):
    """Use as a context manager. `total` counts the runs of searches, too, that are not known yet."""

    def __init__(self, console: Console, total: int, workers: int) -> None:
        self.console, self.total, self.workers = console, total, workers
        self.live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self.done = self.fails = 0
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.said = time.monotonic()

    def __enter__(self) -> Board:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def begin(self, waiting: int) -> None:
        self.say(f"{self.done} runs are there, {max(self.total - self.done, waiting)} to go, {self.workers} at a time")

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

    def expected(self, job: Job) -> float | None:
        """Seconds that a run is likely to take: as its kind took, or as all took."""
        every = self.seconds.get(job.kind) or [s for kind in self.seconds.values() for s in kind]
        return sum(every) / len(every) if every else None

    def left(self, running: Iterable[Job], waiting: Iterable[Job]) -> float | None:
        """Seconds until all is done."""
        running, waiting = list(running), list(waiting)
        shares = [(job, 1 - job.progress()) for job in running] + [(job, 1.0) for job in waiting]
        known = [(e, share) for job, share in shares if (e := self.expected(job)) is not None]
        if not known:
            return None
        unknown = max(0, self.total - self.done - self.fails - len(shares))
        mean = sum(e for e, _ in known) / len(known)
        return (sum(e * share for e, share in known) + unknown * mean) / self.workers

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
