"""Charts of the page as SVG files, for papers and slides."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from fedqhd.core.protocols import Array
from fedqhd.report.spec import Axis, BarChart, LineChart, Values


def svg(chart: LineChart | BarChart) -> str:
    """Draw a chart and return it as SVG. Text stays text, and the same chart always gives the same bytes."""
    figure = Figure(figsize=(4.4, 3.3), layout="constrained")
    axes = figure.subplots()
    draw(axes, chart)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    picture = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedqhd"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    text = picture.getvalue()
    return text[text.index("<svg") :]


def draw(axes: Axes, chart: LineChart | BarChart) -> None:
    """Draw a chart without its legend."""
    axes.set_title(chart.title, loc="left", fontsize=10)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    if isinstance(chart, LineChart):
        _lines(axes, chart)
    else:
        _bars(axes, chart)


def _lines(axes: Axes, chart: LineChart) -> None:
    for line in chart.lines:
        have = [k for k, y in enumerate(line.y) if y is not None]
        x = _floats(chart.x)[have]
        style = (0, line.dash) if line.dash else "-"
        axes.plot(x, _floats(line.y)[have], color=line.color, lw=line.width, ls=style if line.width else "",
                  marker="o" if line.dots else "", ms=3, alpha=1 if line.width else 0.45,
                  label=line.label or None)  # fmt: skip
        if line.low:
            axes.fill_between(x, _floats(line.low)[have], _floats(line.high)[have], color=line.color, alpha=0.15, lw=0)
    if chart.marker:
        axes.axvline(chart.marker[0], color="grey", ls=":", lw=1)
        axes.annotate(chart.marker[1], (chart.marker[0], 1), (3, -8), xycoords=("data", "axes fraction"),
                      textcoords="offset points", fontsize=7, color="grey")  # fmt: skip
    _axis(axes, "x", chart.x_axis)
    _axis(axes, "y", chart.y_axis)


def _bars(axes: Axes, chart: BarChart) -> None:
    draw, at = (axes.barh if chart.horizontal else axes.bar), np.arange(len(chart.names))
    width = 0.8 / len(chart.bars)
    for k, bars in enumerate(chart.bars):
        values = _floats(bars.values)
        errors = np.array([values - _floats(bars.low), _floats(bars.high) - values]) if bars.low else None
        hatch = ["///" if h else "" for h in bars.hatched] or None
        drawn = draw(at + width * (k - (len(chart.bars) - 1) / 2), values, width, color=bars.colors, hatch=hatch,
                     edgecolor="white", label=bars.label or None,
                     **{} if errors is None else {"yerr": errors, "capsize": 3})  # type: ignore[arg-type]  # fmt: skip
        if bars.texts:
            axes.bar_label(drawn, [f" {text}" for text in bars.texts], fontsize=7)
            axes.margins(x=0.35)
    if chart.threshold:
        axes.axhline(chart.threshold[0], color="#b00000", ls="--", lw=1, label=chart.threshold[1])
    if chart.horizontal:
        axes.set_yticks(at, list(chart.names))
        axes.invert_yaxis()
    else:
        axes.set_xticks(at, list(chart.names))
        axes.set_xlabel(chart.name_axis.label, fontsize=9)
    _axis(axes, "x" if chart.horizontal else "y", chart.value_axis)


def _axis(axes: Axes, which: str, axis: Axis) -> None:
    is_x = which == "x"
    mpl_axis = axes.xaxis if is_x else axes.yaxis
    mpl_axis.set_label_text(axis.label, fontsize=9)
    if axis.log:
        (axes.set_xscale if is_x else axes.set_yscale)("log", base=axis.log)
        mpl_axis.set_major_locator(LogLocator(axis.log, (1, 2, 5) if axis.log == 10 else (1,)))
        mpl_axis.set_major_formatter("{x:g}")
        mpl_axis.set_minor_locator(NullLocator())
    elif axis.whole:
        mpl_axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if axis.ticks:
        mpl_axis.set_ticks(axis.ticks, [f"{t:g}" for t in axis.ticks])
    (axes.set_xlim if is_x else axes.set_ylim)(*axis.bounds)
    if axis.reverse:
        mpl_axis.set_inverted(True)


def _floats(values: Values) -> Array:
    return np.array([np.nan if v is None else v for v in values], float)
