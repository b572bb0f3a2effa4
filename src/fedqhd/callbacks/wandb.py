"""A logger for Weights & Biases; needs the extra `wandb`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedqhd.runs.callback import Training
from fedqhd.runs.scalars import ScalarLogger, imported


@dataclass
class WandB(ScalarLogger):
    """Sends the numbers of a run to Weights & Biases.

    Args:
        project: The project of the run.
        mode: "online", "offline" (written to the folder of the run, to be sent later) or "disabled"; by default, what
            the environment variable WANDB_MODE says.
    """

    name: ClassVar[str] = "wandb"

    project: str = "fedqhd"
    mode: str = ""

    def open(self, training: Training) -> None:
        wandb = imported("wandb", self.name, f"callbacks={self.name!r} needs Weights & Biases")
        training.folder.mkdir(parents=True, exist_ok=True)
        self._unit = "episode" if training.steps_done is None else "step of the environment"
        self._run: Any = wandb.init(
            project=self.project,
            name=training.folder.name,
            dir=str(training.folder),
            config=dict(training.config.values),
            mode=self.mode or None,
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, self._unit: step}, step=step)

    def close(self) -> None:
        self._run.finish()
