"""Results as TensorBoard event files; needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedqhd.report.collect import alterations, read_rows
from fedqhd.runs.events import EventFile
from fedqhd.studies.main_table import measured

Point = tuple[str, str, int, float]
"""The name of a run, a tag, a step and a value."""


def points(results: Path) -> Iterator[Point]:
    """Yield all values. A run is a method in one preset and setting; a tag is a quantity in one environment."""
    mark = "altered/" if alterations(results) else ""
    for c in read_rows(results, "curves"):
        run = f"{mark}{c['preset']}/{c['method']}-{c['setting']}"
        for k, value in enumerate(c["iqm"]):
            yield run, f"training return/{c['env']}", c["every"] * (k + 1), value
    for r in measured(read_rows(results, "main")):
        run = f"{mark}{r['preset']}/{r['method']}-{r['setting']}"
        for name in ("final_return", "greedy_return"):
            yield run, f"{name}/{r['env']}", r["episodes"], r[name]["iqm"]
        for name in ("cpu_seconds", "wall_seconds"):
            yield run, f"{name}/{r['env']}", r["episodes"], r[name]


def write_events(results: Path, folder: Path) -> None:
    """Write the results as event files, replacing those of an earlier report.

    Args:
        results: The folder of the result files.
        folder: The folder of the event files, the `--logdir` of TensorBoard.

    Raises:
        FedQHDError: If TensorBoard is not installed.
    """
    files: dict[str, EventFile] = {}
    for run, tag, step, value in points(results):
        if run not in files:
            for old in (folder / run).glob("events.out.tfevents.*"):
                old.unlink()
            files[run] = EventFile(folder / run, f"tensorboard={str(folder)!r} needs TensorBoard")
        files[run].write(step, {tag: value}, wall_time=step)
    for file in files.values():
        file.close()
