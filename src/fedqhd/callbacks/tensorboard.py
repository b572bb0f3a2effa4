"""A logger for TensorBoard; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedqhd.runs.callback import Training
from fedqhd.runs.events import EventFile
from fedqhd.runs.scalars import ScalarLogger


@dataclass
class TensorBoard(ScalarLogger):
    """Writes the numbers of a run as event files for TensorBoard.

    Args:
        folder: The folder of the event files; by default, the folder tensorboard/ of the run.
    """

    name: ClassVar[str] = "tensorboard"

    folder: str | Path = ""

    def open(self, training: Training) -> None:
        folder = Path(self.folder or training.folder / "tensorboard")
        self._file = EventFile(folder, f"callbacks={self.name!r} needs TensorBoard")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(step, values)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
