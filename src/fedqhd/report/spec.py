"""Descriptions of charts, independent of how they are drawn: in the browser by the page, or to a file by `svg`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

Values = Sequence[float | None]
COLUMNS = 7
"""The largest number of columns in the table of a line chart."""


@dataclass(frozen=True)
class Axis:
    """One axis of a chart. Ticks are at round numbers unless `ticks` lists their positions."""

    label: str
    log: int = 0
    """The base of a logarithmic axis, 2 or 10; 0 for a linear axis."""
    ticks: tuple[float, ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    """Where the axis begins and ends; None to fit the data."""
    reverse: bool = False
    whole: bool = False
    """Whether ticks are at whole numbers only."""


@dataclass(frozen=True)
class Line:
    """A line over the x values of its chart, with a band from `low` to `high` if they are given."""

    label: str
    """The name in the legend; a line with an empty name is not listed there."""
    color: str
    y: Values
    low: Values = ()
    high: Values = ()
    dash: tuple[float, ...] = ()
    """Alternating lengths of strokes and gaps, in units of the line width; () draws a solid line."""
    width: float = 1.5
    """The width in pixels; 0 draws dots only."""
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """The base of all charts."""

    kind: ClassVar[str]
    title: str
    """The text above the chart, which sets it apart from the charts beside it."""
    caption: str
    """A description that can be understood without the page, for screen readers and as the name of the SVG file."""

    def file_name(self) -> str:
        """Return the name of the SVG file: the caption in lower-case letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.caption.lower()).strip("-") + ".svg"

    def as_json(self) -> dict[str, Any]:
        """Return the chart as the script of the page reads it, with numbers rounded to five digits and None for NaN."""
        return {"kind": self.kind, **_plain(self)}


@dataclass(frozen=True)
class LineChart(Chart):
    """Lines over common x values."""

    kind = "lines"
    x_axis: Axis
    y_axis: Axis
    x: Sequence[float]
    """In ascending order; every line has a value or None for each x."""
    lines: Sequence[Line]
    marker: tuple[float, str] | None = None
    """The x of a vertical line, and the text beside it."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the head and rows of a table with some of the values, a row for each line of the legend."""
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
    """One series of a bar chart: a bar for each name, with an interval from `low` to `high` if they are given."""

    label: str
    values: Values
    colors: Sequence[str]
    low: Values = ()
    high: Values = ()
    hatched: Sequence[bool] = ()
    texts: Sequence[str] = ()
    """The text at the end of each bar."""


@dataclass(frozen=True)
class BarChart(Chart):
    """One or more series of bars over common names."""

    kind = "bars"
    name_axis: Axis
    value_axis: Axis
    names: Sequence[str]
    bars: Sequence[Bars]
    horizontal: bool = False
    threshold: tuple[float, str] | None = None
    """The value of a line across all bars, and its name in the legend."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the head and rows of a table with all values, a row for each name."""
        columns = []
        for bars in self.bars:
            columns.append(bars.texts or _cells(bars.values, bars.low, bars.high))
        rows = [list(row) for row in zip(self.names, *columns, strict=True)]
        return [self.name_axis.label, *(b.label or self.value_axis.label for b in self.bars)], rows


def _cells(values: Values, low: Values, high: Values) -> list[str]:
    """Return values as texts, with their intervals if there are any."""
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
