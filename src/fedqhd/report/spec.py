"""What a chart shows, apart from how it is drawn: the page draws it in the browser, `svg` draws it into a file."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

Values = Sequence[float | None]
COLUMNS = 7
"""The number of columns that the table of a line chart has at most."""


@dataclass(frozen=True)
class Axis:
    """One axis. Ticks stand at round numbers, unless `ticks` says where."""

    label: str
    log: int = 0
    """The base of a logarithmic axis, 2 or 10; 0 for a linear one."""
    ticks: tuple[float, ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    """Where the axis begins and ends; None where the data say it."""
    reverse: bool = False
    whole: bool = False
    """Whether ticks stand at whole numbers only."""


@dataclass(frozen=True)
class Line:
    """A line over the x of its chart, with a band from `low` to `high` if these are given."""

    label: str
    """Its name in the legend; an empty one keeps it out of the legend."""
    color: str
    y: Values
    low: Values = ()
    high: Values = ()
    dash: tuple[float, ...] = ()
    """Lengths of strokes and gaps in turn, in widths of the line."""
    width: float = 1.5
    """In pixels; with 0 there are only dots."""
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """What charts of every kind have."""

    kind: ClassVar[str]
    title: str
    """Stands above the chart in its file."""
    caption: str
    """Says by itself what the chart shows, and names its file."""

    def file_name(self) -> str:
        """The caption in lower-case letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.caption.lower()).strip("-") + ".svg"

    def as_json(self) -> dict[str, Any]:
        """The chart as the page's script reads it: plain values, numbers to five digits, None for no number."""
        return {"kind": self.kind, **_plain(self)}


@dataclass(frozen=True)
class LineChart(Chart):
    kind = "lines"
    x_axis: Axis
    y_axis: Axis
    x: Sequence[float]
    """In ascending order; every line has a value or None for each."""
    lines: Sequence[Line]
    marker: tuple[float, str] | None = None
    """An x to be marked by a vertical line, and what stands beside it."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of a table of some of the values, a row for each line of the legend."""
        last = len(self.x) - 1
        shown = sorted({round(k * last / (COLUMNS - 1)) for k in range(COLUMNS)})
        rows = []
        for line in self.lines:
            if line.label:
                cells = _cells(line.y, line.low, line.high)
                rows.append([line.label, *(cells[k] for k in shown)])
        return [self.x_axis.label, *(f"{self.x[k]:.4g}" for k in shown)], rows


@dataclass(frozen=True)
class Bars:
    """One bar for each name of the chart."""

    label: str
    values: Values
    colors: Sequence[str]
    low: Values = ()
    high: Values = ()
    hatched: Sequence[bool] = ()
    texts: Sequence[str] = ()
    """What stands at the end of each bar."""


@dataclass(frozen=True)
class BarChart(Chart):
    kind = "bars"
    name_axis: Axis
    value_axis: Axis
    names: Sequence[str]
    bars: Sequence[Bars]
    horizontal: bool = False
    threshold: tuple[float, str] | None = None
    """A value to be marked by a line across all bars, and its name."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of a table of all values, a row for each name."""
        columns = []
        for bars in self.bars:
            columns.append(bars.texts or _cells(bars.values, bars.low, bars.high))
        rows = [list(row) for row in zip(self.names, *columns, strict=True)]
        return [self.name_axis.label, *(b.label or self.value_axis.label for b in self.bars)], rows


def _cells(values: Values, low: Values, high: Values) -> list[str]:
    """Values as text, with their intervals if there are any."""
    spreads = [f" [{a:.4g}, {b:.4g}]" if a is not None else "" for a, b in zip(low, high, strict=True)]
    texts = ["–" if v is None else f"{v:.4g}" for v in values]
    return [text + spread for text, spread in zip(texts, spreads or [""] * len(texts), strict=True)]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, Sequence):
        return [_plain(v) for v in value]
    number = float(f"{value:.5g}")
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
