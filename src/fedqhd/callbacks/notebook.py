"""A progress bar for notebooks."""

from __future__ import annotations

import html
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fedqhd.core.errors import FedQHDError
from fedqhd.core.length import whole_run
from fedqhd.core.protocols import Episode, Reply
from fedqhd.runs.callback import Callback, Evaluation, Training

RECENT = 20
"""The number of last episodes of each client over which the displayed return is averaged."""


class NotebookProgress(Callback):
    """Shows a progress bar and the recent returns below the cell of a Jupyter notebook."""

    name: ClassVar[str] = "notebook"

    def on_start(self, training: Training) -> None:
        try:
            from IPython import display
        except ModuleNotFoundError as error:
            raise FedQHDError("callbacks='notebook' needs IPython, which every notebook has") from error
        clients = training.config.clients
        self._recent: deque[float] = deque(maxlen=RECENT * clients)
        self._played = training.done * clients
        self._note, self._drawn = "", 0.0
        self._ipython: Any = display
        self._shown: Any = self._ipython.display(self._page(training), display_id=True)

    def on_episode(self, training: Training, episode: Episode) -> None:
        self._recent.append(episode.ret)
        self._played += 1 if training.steps_done is None else episode.length
        if time.monotonic() - self._drawn > 0.2:
            self._draw(training)

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        if training.steps_done is not None:  # the steps of episodes that are still open count, too
            self._played = training.done * training.config.clients
        self._draw(training)

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        self._note = f", greedy return {evaluation.mean:.1f} after {evaluation.when}"

    def on_end(self, training: Training, summary: Mapping[str, Any]) -> None:
        self._note = f", greedy return {summary['greedy_return']:.1f} at the end"
        self._draw(training)

    def _draw(self, training: Training) -> None:
        self._drawn = time.monotonic()
        if self._shown is not None:
            self._shown.update(self._page(training))

    def _page(self, training: Training) -> Any:
        c = training.config
        mean = f"{sum(self._recent) / len(self._recent):.1f}" if self._recent else "–"
        text = f"round {training.rounds_done} of {len(training.plan)}, recent return {mean}{self._note}"
        total = whole_run(c).amount * c.clients
        return self._ipython.HTML(
            f'<progress value="{min(self._played, total)}" max="{total}"></progress> '
            f"{html.escape(c.env)}: {html.escape(text)}"
        )
