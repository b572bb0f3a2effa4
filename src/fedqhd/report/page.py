"""The results page: one self-contained file that needs neither a server nor a network."""

from __future__ import annotations

from pathlib import Path

from fedqhd.core.templates import render
from fedqhd.report.collect import alterations, read_rows
from fedqhd.report.svg import svg
from fedqhd.report.tabs import tabs_of
from fedqhd.studies.main_table import measured


def page(results: Path) -> tuple[str, dict[str, str]]:
    """Render the results page.

    Args:
        results: The folder of the result files.

    Returns:
        The HTML of the page, and its charts as SVG texts by file name.
    """
    tabs = tabs_of(results)
    rows = measured(read_rows(results, "main"))
    commits = ", ".join(sorted({c for r in rows for c in r["commit"].split(", ")}))
    text = render(
        "report/templates/page.html", tabs=tabs, cells=len(rows), commits=commits, altered=alterations(results)
    )
    drawn = [chart for tab in tabs for section in tab.sections for chart in section.charts]
    return text, {chart.file_name(): svg(chart) for chart in drawn}
