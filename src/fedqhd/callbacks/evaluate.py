"""Greedy evaluation at regular intervals during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Reply
from fedqhd.runs.callback import Callback, Training


@dataclass
class Evaluate(Callback):
    """Evaluates the greedy policies of all clients after every few rounds, and writes evaluations.jsonl.

    Clients are evaluated as they would be if training ended then, with the newest teacher installed, and training goes
    on as if nothing had happened.

    Args:
        every: The number of rounds between two evaluations.
        episodes: The number of episodes that each client plays.
        seed: The seed of these episodes; None takes that of the run.
    """

    name: ClassVar[str] = "evaluate"

    every: int = 1
    episodes: int = 20
    seed: int | None = None

    def __post_init__(self) -> None:
        for what in ("every", "episodes"):
            if not isinstance(getattr(self, what), int) or getattr(self, what) < 1:
                raise FedQHDError(f"evaluate:{what}={getattr(self, what)} is not possible: it must be at least 1")

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        if training.rounds_done % self.every == 0:
            training.evaluate(self.episodes, self.seed)
