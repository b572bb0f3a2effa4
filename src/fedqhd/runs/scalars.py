"""The base of callbacks that send the numbers of a run to a dashboard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Reply
from fedqhd.runs.callback import Callback, Evaluation, Training


class ScalarLogger(Callback, ABC):
    """Writes the returns of every round, evaluations and the final results; a subclass says where to."""

    @abstractmethod
    def open(self, training: Training) -> None:
        """Prepare for writing, when training starts or resumes."""

    @abstractmethod
    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write named values.

        Args:
            step: The number of episodes, or of steps in a run by steps, for which each client has been trained.
            values: The values by name.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish writing."""

    def on_start(self, training: Training) -> None:
        self.open(training)

    def on_round(self, training: Training, replies: Sequence[Reply]) -> None:
        played = {r.client: [e.ret for e in r.episodes] for r in replies if r.episodes}
        values = {f"return/client-{client}": float(np.mean(returns)) for client, returns in played.items()}
        if played:
            values["return/mean"] = float(np.mean([x for returns in played.values() for x in returns]))
            values["epsilon"] = float(np.mean([r.episodes[-1].epsilon for r in replies if r.episodes]))
        self.write(training.done, values)

    def on_evaluation(self, training: Training, evaluation: Evaluation) -> None:
        self.write(training.done, {"greedy_return/mean": evaluation.mean})

    def on_end(self, training: Training, summary: Mapping[str, Any]) -> None:
        names = ("final_return", "greedy_return", "env_steps", "cpu_seconds", "wall_seconds")
        self.write(training.done, {f"summary/{name}": float(summary[name]) for name in names})
        self.close()


def imported(module: str, extra: str, needs: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: The module.
        extra: The extra of this package that installs it.
        needs: What needs it, and its name: the beginning of the message if it is missing.

    Raises:
        FedQHDError: If the package is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise FedQHDError(f"{needs}: install it with pip install 'fedqhd[{extra}]'") from error
