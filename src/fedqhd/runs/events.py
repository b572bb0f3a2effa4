"""Event files of TensorBoard; they need the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedqhd.runs.scalars import imported


class EventFile:
    """A file of named values, which TensorBoard reads.

    Args:
        folder: The folder of the file.
        needs: The beginning of the message if TensorBoard is not installed.
    """

    def __init__(self, folder: Path, needs: str) -> None:
        event, summary, writer = (
            imported(f"tensorboard.{module}", "tensorboard", needs)
            for module in ("compat.proto.event_pb2", "compat.proto.summary_pb2", "summary.writer.event_file_writer")
        )
        self._event, self._summary = event.Event, summary.Summary
        self._writer = writer.EventFileWriter(str(folder))

    def write(self, step: int, values: Mapping[str, float], wall_time: float | None = None) -> None:
        """Add values by name; without a time, they have none."""
        found = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(self._event(step=step, wall_time=wall_time, summary=self._summary(value=found)))

    def flush(self) -> None:
        """Write what was added to the file, so that TensorBoard shows it."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
