"""Stopping a run when its return is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedqhd.core.protocols import Reply
from fedqhd.runs.callback import Callback, Evaluation, Training
from fedqhd.runs.outcome import training_returns


@dataclass
class StopAt(Callback):
    """Stops training when the mean return of all clients reaches a goal.

    Args:
        goal: The return to reach.
        last: The number of last training episodes of each client over which the mean is taken.
        greedy: Whether greedy evaluations decide instead; it needs the callback `Evaluate`.
    """

    name: ClassVar[str] = "stop-at"

    goal: float
    last: int = 20
    greedy: bool = False

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        played = training.episodes_done
        if not self.greedy and played >= self.last:
            returns = training_returns(training.folder, training.config.clients, played)
            if training.steps_done is not None:  # clients have played as many steps, but not as many episodes
                ended = [row[~np.isnan(row)][-self.last :] for row in returns]
                if min(map(len, ended)) < self.last:
                    return
                returns = np.stack(ended)
            self._judge(training, float(np.nanmean(returns[:, -self.last :])), f"over the last {self.last} episodes")

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        if self.greedy:
            self._judge(training, evaluation.mean, "of greedy episodes")

    def _judge(self, training: Training, reached: float, which: str) -> None:
        if reached >= self.goal:
            training.stop(f"the mean return {which}, {reached:.1f}, has reached {self.goal:g}")
