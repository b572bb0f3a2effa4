"""The terminal output of a run: a live view in a terminal, plain lines in a file or pipe, and a closing table."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedqhd.core.config import Config
from fedqhd.core.length import whole_run
from fedqhd.core.protocols import Episode, Quota, Reply
from fedqhd.federation.method import method_of
from fedqhd.runs.callback import Callback, Evaluation, Training
from fedqhd.runs.limits import all_feature_bytes, stored_as
from fedqhd.runs.private import privacy_text

RECENT = 20
"""The number of episodes that the displayed mean return covers."""
SHOWN = 12
"""The largest number of clients that the live view lists."""
SHOWN_AT_END = 50
"""The largest number of clients that the closing table lists."""


UNUSUAL = {
    "refused": "refused, because of what they contained",
    "absent": "missing, although the clients were asked",
    "left out": "left out by aggregate={aggregate}, because they were far from what most clients reported",
    "late": "late by a round",
}
"""What the closing lines say of replies that did not count as usual."""


def number(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun, for instance "1 client" or "3 clients"."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


class Messages(logging.Handler):
    """Prints the log of the package on a console while it is entered, above a live view if there is one."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(record.getMessage(), highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        logging.getLogger("fedqhd").addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("fedqhd").removeHandler(self)


def clock(seconds: float) -> str:
    """Format a duration as m:ss or h:mm:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Screen:
    """A live view, if the console is a terminal.

    Use it as a context manager, so that it is closed after an error, too.

    Args:
        console: Where to print.
        per_second: How often the view is refreshed.
    """

    def __init__(self, console: Console, per_second: float) -> None:
        self.console = console
        view = Live(console=console, refresh_per_second=per_second, transient=True)
        self.live = view if console.is_terminal else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()


class Progress(Screen, Callback):
    """A callback that shows the progress of a run."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, per_second=4)
        self.config: Config
        self.rounds = self.rounds_done = self.steps = self.played = self.reported = 0
        self.before = self.expected = 0.0
        self.whole = Quota()
        self.began = time.monotonic()
        self.recent: list[deque[float]] = []
        self.last: list[Episode | None] = []
        self.drawn = 0.0

    def on_start(self, training: Training) -> None:
        config, rounds, rounds_done = training.config, len(training.plan), training.rounds_done
        self.config, self.rounds, self.rounds_done = config, rounds, rounds_done
        self.whole = whole_run(config)
        # With partial participation, clients play less on average.
        self.expected = self.whole.amount * config.clients * config.get("participation", 1.0)
        self.before = self.expected * rounds_done / rounds
        self.began = time.monotonic()
        self.recent = [deque(maxlen=RECENT) for _ in range(config.clients)]
        self.last = [None] * config.clients
        resumed = f", resumed after round {rounds_done}" if rounds_done else ""
        self.console.print(
            f"{config.env}: {config.method}, {config.setting}, {method_of(config).learner_name} learner, "
            f"{number(config.clients, 'client')}, {self.length()} in {number(rounds, 'round')}, "
            f"seed {config.seed}{resumed}",
            highlight=False,
            soft_wrap=True,
        )
        if size := all_feature_bytes(config):
            self.console.print(f"hypervectors are stored as {stored_as(config)}, at most {size / 1e6:,.0f} MB in all",
                               highlight=False)  # fmt: skip

    def on_episode(self, training: Training, episode: Episode) -> None:
        self.recent[episode.client].append(episode.ret)
        self.last[episode.client] = episode
        self.steps += episode.length
        self.played += episode.length if self.whole.steps else 1
        if self.live and time.monotonic() - self.drawn > 0.2:
            self.live.update(self.view())
            self.drawn = time.monotonic()

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        self.rounds_done = training.rounds_done
        self.reported += sum(r.steps for r in replies)
        if self.whole.steps:  # the steps of episodes that are still open count, too
            self.steps = self.played = self.reported
        if replies and not self.live:
            returns = " ".join(self.mean(i) for i in range(self.config.clients)[:SHOWN])
            more = " ..." if self.config.clients > SHOWN else ""
            last = max((e for e in self.last if e), key=lambda e: e.episode, default=None)
            steps = f"steps {training.done:,}/{self.whole.steps:,}  " if self.whole.steps else ""
            self.console.print(
                f"round {self.rounds_done}/{self.rounds}  {steps}episodes {self.count(last)}  "
                f"returns {returns}{more}  epsilon {f'{last.epsilon:.3f}' if last else '–'}  "
                f"{self.rate():,.0f} steps/s  left {clock(self.left())}",
                highlight=False,
                soft_wrap=True,
            )

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        self.console.print(f"greedy return after {evaluation.when}: {evaluation.mean:.1f}", highlight=False)

    def on_training_end(self, training: Training) -> None:
        if training.stopped:
            self.console.print(f"training was stopped because {training.stopped}", highlight=False, soft_wrap=True)
        text = f"training is done; evaluating {number(self.config.eval_episodes, 'greedy episode')} per client"
        if self.live:
            self.live.update(Text(text))
        else:
            self.console.print(text, highlight=False)

    def mean(self, client: int) -> str:
        """Return the mean of a client's last returns as text."""
        recent = self.recent[client]
        return f"{sum(recent) / len(recent):.1f}" if recent else "–"

    def length(self) -> str:
        """Return how long the run is, for instance "600 episodes"."""
        return number(self.whole.amount, "step" if self.whole.steps else "episode")

    def count(self, last: Episode | None) -> str:
        """Return how many episodes a client has played, given the last one, and of how many if that is known."""
        played = last.episode + 1 if last else 0
        return f"{played}" if self.whole.steps else f"{played}/{self.whole.episodes}"

    def rate(self) -> float:
        """Return the steps per second since the start, of all clients together."""
        return self.steps / max(time.monotonic() - self.began, 1e-9)

    def left(self) -> float:
        """Return the seconds left, assuming that the remaining episodes or steps take as long as those played."""
        remaining = self.expected - self.before - self.played
        return (time.monotonic() - self.began) / max(self.played, 1) * max(remaining, 0.0)

    def view(self) -> Group:
        """Return the live view: a progress bar and a table of clients."""
        table = Table(box=None, padding=(0, 2))
        for title in ("client", "episodes", f"return (last {RECENT})", "epsilon"):
            table.add_column(title, justify="right")
        for i, last in enumerate(self.last[:SHOWN]):
            if last:
                table.add_row(str(i), self.count(last), self.mean(i), f"{last.epsilon:.3f}")
        if len(self.last) > SHOWN:
            table.add_row("...", f"and {len(self.last) - SHOWN} more")
        line = Table.grid(padding=(0, 2))
        line.add_row(
            f"round {min(self.rounds_done + 1, self.rounds)}/{self.rounds}",
            ProgressBar(total=self.expected, completed=self.before + self.played, width=30),
            f"{self.rate():,.0f} steps/s",
            f"left {clock(self.left())}",
        )
        return Group(line, table)


def closing(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the results of a run from its summary: a table with a row for each client, then totals."""
    last = max(1, min(100, summary["episodes"]))
    table = Table(title=f"{summary['env']}, {summary['method']}, {summary['setting']}", title_justify="left")
    for title in ("client", "return, last episode" if last == 1 else f"return, last {last} episodes", "greedy return"):
        table.add_column(title, justify="right")
    finals, greedies = summary["final_return_per_client"], summary["greedy_return_per_client"]
    for i, (final, greedy) in enumerate(zip(finals[:SHOWN_AT_END], greedies[:SHOWN_AT_END], strict=True)):
        # A client that was never asked to train has no return, and one that was gone at the end no greedy return.
        table.add_row(str(i), "–" if math.isnan(final) else f"{final:.1f}", "–" if greedy is None else f"{greedy:.1f}")
    if len(finals) > SHOWN_AT_END:
        table.add_row("...", f"and {number(len(finals) - SHOWN_AT_END, 'more client')}")
    table.add_section()
    mean = "–" if math.isnan(summary["final_return"]) else f"{summary['final_return']:.1f}"
    table.add_row("mean", mean, f"{summary['greedy_return']:.1f}", style="bold")
    console.print(table)
    if "greedy_return_nominal" in summary:
        console.print(
            f"greedy return on the nominal environment: {summary['greedy_return_nominal']:.1f}", highlight=False
        )
    for kind, counts in summary["replies"].items():
        if counts:
            text = f"{number(sum(counts.values()), 'reply', 'replies')} {UNUSUAL[kind]}; summary.json says whose"
            console.print(text.format(**summary), highlight=False, soft_wrap=True)
    if "privacy" in summary:
        console.print(privacy_text(summary["privacy"]), highlight=False, soft_wrap=True)
    up, down = summary["bytes_up_per_round"] / 1024, summary["bytes_down_per_round"] / 1024
    console.print(
        f"{summary['env_steps']:,} steps in {summary['wall_seconds']:.1f} s ({summary['cpu_seconds']:.1f} CPU s); "
        f"{up:,.1f} KiB up and {down:,.1f} KiB down per round, all clients together",
        highlight=False,
        soft_wrap=True,
    )


def profile(console: Console, summary: Mapping[str, Any]) -> None:
    """Print how the time of a run divides into its parts, for all clients and the server together."""
    split = {name: seconds for name, seconds in summary["split_seconds"].items() if seconds}
    steps = summary["env_steps"]
    total = sum(split.values())
    table = Table(title="where the time went", title_justify="left")
    for title in ("", "seconds", "share", "µs per step"):
        table.add_column(title, justify="right" if title else "left")
    for name, seconds in (*split.items(), ("all", total)):
        if name == "all":
            table.add_section()
        table.add_row(name, f"{seconds:.2f}", f"{seconds / total:.1%}", f"{1e6 * seconds / steps:.1f}")
    console.print(table)
