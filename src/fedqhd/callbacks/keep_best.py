"""Keeping the best models of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.runs.callback import Callback, Evaluation, Training


@dataclass
class KeepBest(Callback):
    """Saves the models of all clients in the folder best/ of the run when an evaluation is better than all before.

    The folder can be given wherever a run can, for example to `fedqhd play`. The callback needs `Evaluate`.
    """

    name: ClassVar[str] = "keep-best"

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        before = [line["greedy_return"] for line in training.evaluations() if line["round"] < evaluation.round]
        if all(evaluation.mean > value for value in before):
            training.save_best()
