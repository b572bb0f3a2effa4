"""The federation gap of a run as tables in the terminal and as a figure, made from its report alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fedqhd.core.files import write_bytes
from fedqhd.gap.advise import flags
from fedqhd.gap.measure import verdict
from fedqhd.gap.states import SOURCES

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


Line = tuple[str, Callable[[Mapping[str, Any]], Any]]
"""The name of a quantity, and a function that takes it from a client's entry in the report."""


def number_text(x: Any) -> str:
    """Format a value for a table; a float gets at most seven characters."""
    if not isinstance(x, float):
        return str(x)
    return f"{x:,.0f}" if 1e3 <= abs(x) < 1e5 else f"{x:.3g}" if x == 0 or 1e-3 <= abs(x) < 1e3 else f"{x:.1e}"


def print_by_client(console: Console, title: str, rows: Sequence[Mapping[str, Any]], lines: Sequence[Line]) -> None:
    """Print a table with a row for each quantity and a column for each client.

    If the terminal is too narrow for all clients, several tables follow one another.
    """
    widest = max(len(name) for name, _ in lines)
    fit = max(1, (console.width - widest - 2) // 10)
    for k in range(0, len(rows), fit):
        grid = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        grid.add_column("client", min_width=widest)
        for r in rows[k : k + fit]:
            grid.add_column(str(r["client"]), justify="right", min_width=7)
        for name, value in lines:
            grid.add_row(name, *(number_text(value(r)) for r in rows[k : k + fit]))
        console.print(grid)


def distances(source: str) -> list[Line]:
    """Return the lines for the distance from the teacher on states of one source, before and after the exchange."""
    return [
        (f"{source}, {when}", lambda r, s=source, w=when: r["errors"][s][w])  # type: ignore[misc]
        for when in ("before", "after")
    ]


def show(console: Console, report: Mapping[str, Any]) -> None:
    """Print a report of `measure_gap`.

    It shows what the anchors see, what the exchange changed, and, if there is a reference Q*, the paper's bound beside
    the measured gap.
    """
    rows, lam = report["clients"], report["lam"]
    console.print(
        f"{report['env']}: last exchange of {len(rows)} QHD clients through {report['anchors']} anchors "
        f"({report['anchor_source']}), {report['compile']}, lam {lam:g}; measured on {report['states']:,} states",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    anchors: list[Line] = [
        ("features", lambda r: r["features"]),
        ("rank of X", lambda r: r["rank"]),
        (f"effective rank at lam {lam:g}", lambda r: f"{r['effective_rank']:.0f}"),
        ("γ, least positive eigenvalue", lambda r: r["gamma"]),
        ("condition number", lambda r: r["condition"]),
        ("share of W outside row(X)", lambda r: r["outside_row_space"]),
    ]
    print_by_client(console, "What the anchors see", rows, anchors)
    exchange: list[Line] = [
        ("at the anchors, after", lambda r: r["anchor_residual"]),
        *(line for source in SOURCES for line in distances(source)),
        ("misfit, policy states", lambda r: r["errors"]["policy"]["misfit"]),
        ("held back, policy states", lambda r: r["errors"]["policy"]["held_back"]),
        ("greedy action differs, policy", lambda r: f"{100 * r['errors']['policy']['greedy_changed']:.1f} %"),
        ("greedy return, before", lambda r: f"{r['greedy_before']:.1f}"),
        ("greedy return, after", lambda r: f"{r['greedy_after']:.1f}"),
    ]
    print_by_client(console, "Distance from the teacher (RMS)", rows, exchange)
    if report["reference"]:
        show_bound(console, rows)
    for r in rows:
        console.print(f"client {r['client']}: {verdict(r)}", highlight=False, soft_wrap=True)
    show_angles(console, report["angles"])


def show_bound(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the terms of the paper's bound and the gaps to the oracle projections of Q*, for each client."""
    lines: list[Line] = [
        ("h̄", lambda r: r["bound"]["h_bar"]),
        ("bound, term I", lambda r: r["bound"]["heterogeneity"]),
        ("bound, term II", lambda r: r["bound"]["amplification"]),
        ("bound, term III", lambda r: r["bound"]["shrinkage"]),
        ("bound is valid", lambda r: "yes" if r["bound"]["valid"] else "no"),
        ("corrected bound", lambda r: r["bound"]["corrected"]),
        ("gap of compiled oracles, max", lambda r: r["static_gap"]["max"]),
        ("same by warm-start, max", lambda r: r["static_gap_warm_start"]["max"]),
        ("measured gap, max", lambda r: r["gap"]["max"]),
        ("measured gap, RMS", lambda r: r["gap"]["rms"]),
        ("policy value gap", lambda r: f"{r['policy_value_gap']:.1f}"),
    ]
    print_by_client(console, "Against the oracle projection of Q*", rows, lines)
    for r in rows:
        if not r["bound"]["valid"]:
            console.print(f"client {r['client']}: the bound does not apply, {r['bound']['reason']}", soft_wrap=True)


def show_angles(console: Console, angles: Sequence[Mapping[str, Any]]) -> None:
    """Print the angles between the clients' spans, and how many pairs were skipped."""
    measured = [a for a in angles if "largest" in a]
    skipped = [a for a in angles if "largest" not in a]
    if measured:
        grid = Table(title="Angles between the spans", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for column in ("clients i, j", "least angle", "largest", "‖(I−Πi)Πj‖", "‖(I−Πj)Πi‖"):
            grid.add_column(column, justify="right")
        for a in measured:
            i, j = a["pair"]
            i_to_j, j_to_i = a["misalignment"]
            grid.add_row(f"{i}, {j}", f"{a['smallest']:.2g}°", f"{a['largest']:.1f}°", f"{i_to_j:.3f}", f"{j_to_i:.3f}")
        console.print(grid)
    if skipped:
        console.print(
            f"angles of {len(skipped)} pairs of spans were skipped: they need up to "
            f"{max(a['states_needed'] for a in skipped):,} states; if D differs, ‖(I−Πi)Πj‖ is 1 for the larger Dj",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table for the terminal, all columns aligned to the right."""
    grid = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        grid.add_column(column, justify="right")
    for row in rows:
        grid.add_row(*map(number_text, row))
    return grid


def show_advice(console: Console, advice: Mapping[str, Any]) -> None:
    """Print advice of `fedqhd.gap.advise.advise`: the given choice, all sources of anchors, and what to change."""
    given, advised = advice["given"], advice["advised"]
    console.print(
        f"{advice['env']}: {len(advice['dims'])} encoders of D={', '.join(map(str, advice['dims']))}, sigma "
        f"{advice['sigma']:g}; values of {advice['teacher']}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip

    def row(name: str, c: Mapping[str, Any]) -> tuple[Any, ...]:
        ranks = f"{min(c['effective_rank']):.0f} to {max(c['effective_rank']):.0f}"
        return name, c["source"], c["anchors"], c["lam"], ranks, c["loo_error"], c["held_out_error"]

    rows = [row("given", given), *(row("", c) for c in advice["compared"]), row("advised", advised)]
    columns = ("", "anchors from", "m", "lam", "effective rank", "leave-one-out", "held-out")
    console.print(table("Errors of compiled values, as a share of their spread", columns, rows))
    word = "well" if advice["well_conditioned"] else "not well"
    console.print(f"given: {word} conditioned; {advice['reason']}", highlight=False, soft_wrap=True)
    if not advice["well_conditioned"]:
        console.print(f"change it to: {flags(advised)}", highlight=False, soft_wrap=True)


def draw(report: Mapping[str, Any], path: Path) -> Path:
    """Draw a report of `measure_gap` to a file and return its path.

    The left panel shows what the anchors see, the middle one the distance from the teacher by source of states, and the
    right one what causes it on states that policies visit.
    """
    from matplotlib.figure import Figure  # importing it takes a third of a second

    rows, lam = report["clients"], report["lam"]
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for k, r in enumerate(rows):
        eigenvalues = np.array(r["eigenvalues"])
        left.plot(
            np.arange(1, len(eigenvalues) + 1), eigenvalues, color=COLOURS[k % len(COLOURS)],
            label=f"client {r['client']}, D={r['D']}: effective rank {r['effective_rank']:.0f}",
        )  # fmt: skip
    left.axhline(lam, color="black", ls="--", lw=1)
    left.annotate(
        f"λ = {lam:g}", (1, lam), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
        ha="right", fontsize=9,
    )  # fmt: skip
    left.set(yscale="log", ylim=(1e-12, None), xlabel="direction", title="Eigenvalues of G: what the anchors see")
    x, width = np.arange(len(rows)), 0.8 / len(SOURCES)
    for k, source in enumerate(SOURCES):
        at = x + (k - 1) * width
        middle.bar(at, [r["errors"][source]["after"] for r in rows], width * 0.9, color=COLOURS[k], label=source)
        middle.plot(at, [r["errors"][source]["before"] for r in rows], "k_", ms=10, label="before" if k == 0 else None)
    middle.set(yscale="log", ylabel="RMS distance from the teacher", title="After the exchange, by source of states")
    middle.set_ylim(top=4 * middle.get_ylim()[1])  # room for the legend
    for k, name in enumerate(("misfit", "held_back")):
        values = [r["errors"]["policy"][name] for r in rows]
        right.bar(x + (k - 0.5) * 0.4, values, 0.36, color=COLOURS[3 + k], label=name.replace("_", " "))
    right.set(ylabel="RMS", title="Causes, on policy states")
    right.set_ylim(top=1.15 * right.get_ylim()[1])  # room for the legend
    for axes in (middle, right):
        axes.set_xticks(x, [f"{r['client']}\nD={r['D']}" for r in rows])
        axes.set_xlabel("client")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=1 if axes is left else 4)
    figure.suptitle(
        f"{report['env']}: {report['anchors']} anchors ({report['anchor_source']}), {report['compile']}",
        x=0.01, ha="left", fontsize=11,
    )  # fmt: skip
    figure.savefig(path, dpi=110)
    return path


def write(report: Mapping[str, Any], run: str | Path) -> tuple[Path, Path]:
    """Write gap.json and gap.png to the folder of a run and return their paths."""
    file = Path(run) / "gap.json"
    write_bytes(file, (json.dumps(report, indent=1) + "\n").encode())
    return file, draw(report, file.with_suffix(".png"))
