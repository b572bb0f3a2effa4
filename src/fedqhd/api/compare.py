"""Comparisons of finished runs."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedqhd.api.run import Run, table_of
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.core.trust import grant
from fedqhd.report import compare as views
from fedqhd.studies import comparison
from fedqhd.studies.grouping import differing, find_runs, groups_of, read_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Source = str | PathLike[str] | Run
PICTURE, PAGE = "comparison.png", "comparison.html"


class Comparison:
    """Runs in groups, with statistics over each: `table()`, `curves()`, `improvement()`, `plot()`, `save(folder)`.

    `fedqhd.compare` and `fedqhd.sweep` make it.

    Args:
        folders: The folders of finished runs.
        by: The settings by which they are grouped; None for those in which they differ.
        notes: Sentences about the comparison, to which those about the groups are added.
    """

    def __init__(self, folders: Sequence[Path], by: Sequence[str] | None = None, notes: Iterable[str] = ()) -> None:
        runs = read_runs(folders)
        self.runs = [Run(run.job.folder) for run in runs]
        self.by = tuple(differing(runs) or ("method",) if by is None else by)
        self.groups, found = groups_of(runs, self.by)
        self.notes = [*notes, *found]

    def table(self) -> Any:
        """Return a row for each group: the number of runs (seeds), and the interquartile means of the returns.

        The columns that end in _low and _high have the ends of 95 % bootstrap intervals, or NaN if there is one run.

        Returns:
            A pandas DataFrame or, if pandas is not installed, a dictionary with an array for each column.
        """
        return table_of(comparison.rows_of(self.groups))

    def curves(self) -> Any:
        """Return a row for each point of the learning curve of each group, in the form of `table`.

        A point is the interquartile mean over runs of the return of the last episodes of all clients, with the ends of
        its 95 % bootstrap interval.
        """
        return table_of(comparison.curve_rows(self.groups))

    def improvement(self) -> Any:
        """Return the probability that a run of one group beats one of another, for each pair, in the form of `table`.

        The probability is that over all pairs of runs, with ties counting one half, averaged over environments.
        """
        return table_of(comparison.improvement_rows(self.groups))

    def plot(self) -> Figure:
        """Return a matplotlib figure of the learning curves, which a notebook displays."""
        return views.figure(self.groups)

    def page(self) -> str:
        """Return the comparison as one self-contained HTML page."""
        return views.page(self.groups, self.notes)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write a picture of the curves and a page with everything to a folder, and return their paths."""
        picture = io.BytesIO()
        self.plot().savefig(picture, format="png", dpi=150)
        files = {Path(folder) / PICTURE: picture.getvalue(), Path(folder) / PAGE: self.page().encode()}
        for path, content in files.items():
            write_bytes(path, content)
        return list(files)

    def __str__(self) -> str:
        """Return the tables and notes as they are printed in a terminal."""
        from rich.console import Console

        console = Console(file=io.StringIO(), width=120)
        with console.capture() as text:
            views.show(console, self.groups, self.notes)
        return text.get().rstrip()

    def __repr__(self) -> str:
        labels = dict.fromkeys(group.label for group in self.groups)
        return f"<Comparison of {len(self.runs)} runs by {', '.join(self.by)}: {'; '.join(labels)}>"

    def _repr_html_(self) -> str:
        return views.cell(self.groups, self.notes)


def compare(runs: Source | Iterable[Source], by: str | Sequence[str] = (), trust: bool = False) -> Comparison:
    """Compare finished runs.

    Args:
        runs: Runs, their folders, or folders that contain folders of runs, such as that of a sweep.
        by: The setting or settings by which runs are grouped. If there are none, runs are grouped by the settings in
            which they differ. Environments are always kept apart.
        trust: Whether to import code that the runs name, even if this user did not make them on this machine.

    Returns:
        The comparison, which can be read as tables, plotted and saved as a page.

    Raises:
        FedQHDError: If a folder contains no finished run, or `by` names no setting of the runs.
    """
    sources = [runs] if isinstance(runs, str | PathLike | Run) else list(runs)
    if not sources:
        raise FedQHDError("there is nothing to compare: give folders of finished runs")
    folders, notes = list[Path](), list[str]()
    for source in sources:
        folder = source.folder if isinstance(source, Run) else Path(source)
        done, unfinished = find_runs(folder)
        folders += done
        for place in done if trust else []:
            grant(place)
        if unfinished:
            number = "One run" if len(unfinished) == 1 else f"{len(unfinished)} runs"
            notes.append(f"{number} in {folder} did not finish and {'is' if len(unfinished) == 1 else 'are'} left out.")
    names = [by] if isinstance(by, str) else list(by)
    return Comparison(folders, names or None, notes)
