"""The comparison of groups of runs as a picture, as a page, as a cell of a notebook and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedqhd.core.templates import render
from fedqhd.federation.method import METHODS, Style
from fedqhd.report.spec import Axis, Line, LineChart
from fedqhd.report.tabs import Section, Table, TableCell
from fedqhd.studies.comparison import Estimate, curve_of, improvements, mean_of
from fedqhd.studies.grouping import Group, smoothing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

# The colours of Okabe and Ito without yellow, and dashes; their numbers have no common divisor, so that the first 28
# groups all look different.
COLORS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 2), (6, 2, 1, 2))
LEGEND = (
    "Values and curves are interquartile means over the runs of a group (of up to three runs, the mean); brackets and "
    "bands are 95 % bootstrap intervals. Final return: training, last 100 episodes. Greedy return: after training, "
    "without exploration."
)
IMPROVEMENT_LEGEND = (
    "The probability that a run of the first group has a higher return than a run of the second one, over all pairs of "
    "runs; a tie counts one half. If its interval contains 0.5, the runs do not tell which group is better."
)


def seeds_text(group: Group) -> str:
    """Return the number of runs of a group in words."""
    return f"{len(group.seeds)} seed{'s' if len(group.seeds) > 1 else ''}"


def styles(groups: Sequence[Group]) -> dict[str, Style]:
    """Return how charts draw each group: as its method is drawn everywhere, if that tells all groups apart."""
    methods = {group.label: METHODS.find(group.method).style for group in groups}
    if len({style.color for style in methods.values()}) == len(methods):
        return methods
    return {x: Style(COLORS[k % len(COLORS)], DASHES[k % len(DASHES)], 1.8) for k, x in enumerate(methods)}


def charts(groups: Sequence[Group]) -> list[LineChart]:
    """Return the learning curves of all groups, a chart for each environment."""
    style, found = styles(groups), []
    for env in dict.fromkeys(group.env for group in groups):
        lines, x = [], list[float]()
        for group in (g for g in groups if g.env == env):
            curve, look = curve_of(group), style[group.label]
            x = curve.episodes.tolist()
            band = {} if len(group.seeds) == 1 else {"low": curve.low.tolist(), "high": curve.high.tolist()}
            label = f"{group.label} ({seeds_text(group)})"
            lines.append(Line(label, look.color, curve.values.tolist(), dash=look.dash, width=look.width, **band))
        width = smoothing(int(x[-1]))
        caption = f"Learning curves on {env}" + (f", smoothed over {width} episodes" if width > 1 else "")
        x_axis, y_axis = Axis("episode", bounds=(0, x[-1]), whole=True), Axis("training return")
        found.append(LineChart(caption, caption, x_axis, y_axis, x, lines))
    return found


def figure(groups: Sequence[Group]) -> Figure:
    """Draw the learning curves of all groups, with one legend for all environments."""
    from matplotlib.figure import Figure  # importing it takes a third of a second

    from fedqhd.report.svg import draw

    drawn = charts(groups)
    columns = min(2, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    labels = max(len(chart.lines) for chart in drawn)
    per_line = 2 if labels > 1 and max(len(line.label) for chart in drawn for line in chart.lines) * columns < 90 else 1
    figure = Figure(figsize=(6.4 * columns, 3.9 * rows + 0.2 * math.ceil(labels / per_line)), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    handles: dict[str, Any] = {}
    for axes, chart in zip(grid, drawn, strict=False):
        draw(axes, chart)
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    for axes in grid[len(drawn) :]:
        axes.remove()
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=per_line, frameon=False, fontsize=9, handlelength=3
    )
    return figure


def tables(groups: Sequence[Group]) -> list[Table]:
    """Return the returns of all groups, a table for each environment."""
    found = []
    for env in dict.fromkeys(group.env for group in groups):
        rows = []
        for g in (g for g in groups if g.env == env):
            returns = (mean_of(g.final_return), mean_of(g.greedy_return))
            rows.append((g.label, [TableCell(str(len(g.seeds))), *(_cell(one, 1) for one in returns)]))
        found.append(Table(f"Returns on {env}", ["group", "seeds", "final return", "greedy return"], rows))
    return found


def improvement_tables(groups: Sequence[Group]) -> list[Table]:
    """Return the table of probabilities of improvement; none if there is nothing to compare."""
    pairs = improvements(groups)
    several = len({group.env for group in groups}) > 1
    rows = [
        (f"{i.label} over {i.other}",
         [*([TableCell(str(len(i.envs)))] if several else []), _cell(i.final_return, 2), _cell(i.greedy_return, 2)])
        for i in pairs
    ]  # fmt: skip
    head = ["groups", *(["envs"] if several else []), "final return", "greedy return"]
    return [Table("Probability of improvement", head, rows)] if rows else []


def _cell(estimate: Estimate, digits: int) -> TableCell:
    interval = estimate.interval(digits)
    return TableCell(f"{estimate.value:.{digits}f}", (interval,) if interval else ())


def sections(groups: Sequence[Group], notes: Sequence[str]) -> list[Section]:
    """Return the contents of the page."""
    first = Section(tables=tables(groups), charts=charts(groups), note=LEGEND)
    pairs = improvement_tables(groups)
    second = [Section(tables=pairs, note=IMPROVEMENT_LEGEND)] if pairs else []
    return [Section(points=list(notes)), first, *second]


def page(groups: Sequence[Group], notes: Sequence[str]) -> str:
    """Render the comparison as a page that needs neither a server nor a network."""
    runs, labels = sum(len(group.seeds) for group in groups), {group.label for group in groups}
    return render("report/templates/compare.html", sections=sections(groups, notes), runs=runs, groups=len(labels))


def cell(groups: Sequence[Group], notes: Sequence[str]) -> str:
    """Render the tables of the comparison for a notebook."""
    shown = [*tables(groups), *improvement_tables(groups)]
    return render("report/templates/compare_cell.html", tables=shown, notes=notes)


def show(console: Console, groups: Sequence[Group], notes: Iterable[str]) -> None:
    """Print the tables of the comparison and the notes on it."""
    from rich.table import Table as TextTable

    for one in [*tables(groups), *improvement_tables(groups)]:
        text = TextTable(title=one.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        for k, name in enumerate(one.head):
            text.add_column(name, justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
        for name, cells in one.rows:
            text.add_row(name, *(" ".join((c.text, *c.notes)) for c in cells))
        console.print(text, markup=False, highlight=False)
        console.print()
    for note in notes:
        console.print(note, highlight=False, markup=False)
