"""The federation gap of a run, as tables in the terminal and as a figure; drawn from gap.json alone."""

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
"""A quantity's name, and how to find it in a client's part of the report."""


def text(x: Any) -> str:
    """At most seven signs for a number."""
    if not isinstance(x, float):
        return str(x)
    return f"{x:,.0f}" if 1e3 <= abs(x) < 1e5 else f"{x:.3g}" if x == 0 or 1e-3 <= abs(x) < 1e3 else f"{x:.1e}"


def by_client(console: Console, title: str, rows: Sequence[Mapping[str, Any]], lines: Sequence[Line]) -> None:
    """A column a client, so that names can be words and nothing is cut off; many clients in several tables."""
    widest = max(len(name) for name, _ in lines)
    fit = max(1, (console.width - widest - 2) // 10)
    for k in range(0, len(rows), fit):
        made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        made.add_column("client", min_width=widest)
        for r in rows[k : k + fit]:
            made.add_column(str(r["client"]), justify="right", min_width=7)
        for name, value in lines:
            made.add_row(name, *(text(value(r)) for r in rows[k : k + fit]))
        console.print(made)


def distances(source: str) -> list[Line]:
    return [
        (f"{source}, {when}", lambda r, s=source, w=when: r["errors"][s][w])  # type: ignore[misc]
        for when in ("before", "after")
    ]


def show(console: Console, report: Mapping[str, Any]) -> None:
    """What the anchors see, what the exchange did, and, with a Q*, the paper's bound beside what was measured."""
    rows, lam = report["clients"], report["lam"]
    console.print(
        f"{report['env']}: last exchange of {len(rows)} QHD clients through {report['anchors']} anchors "
        f"({report['anchor_source']}), {report['compile']}, lam {lam:g}; measured on {report['states']:,} states",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    seen: list[Line] = [
        ("features", lambda r: r["features"]),
        ("rank of X", lambda r: r["rank"]),
        (f"effective rank at lam {lam:g}", lambda r: f"{r['effective_rank']:.0f}"),
        ("γ, least positive eigenvalue", lambda r: r["gamma"]),
        ("condition number", lambda r: r["condition"]),
        ("share of W outside row(X)", lambda r: r["outside_row_space"]),
    ]
    by_client(console, "What the anchors see", rows, seen)
    did: list[Line] = [
        ("at the anchors, after", lambda r: r["anchor_residual"]),
        *(line for source in SOURCES for line in distances(source)),
        ("misfit, where policies go", lambda r: r["errors"]["policy"]["misfit"]),
        ("held back, where policies go", lambda r: r["errors"]["policy"]["held_back"]),
        ("greedy action differs there", lambda r: f"{100 * r['errors']['policy']['greedy_changed']:.1f} %"),
        ("greedy return, before", lambda r: f"{r['greedy_before']:.1f}"),
        ("greedy return, after", lambda r: f"{r['greedy_after']:.1f}"),
    ]
    by_client(console, "Distance from the teacher (RMS)", rows, did)
    if report["reference"]:
        show_bound(console, rows)
    for r in rows:
        console.print(f"client {r['client']}: {verdict(r)}", highlight=False, soft_wrap=True)
    show_angles(console, report["angles"])


def show_bound(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    lines: list[Line] = [
        ("h̄", lambda r: r["bound"]["h_bar"]),
        ("bound, term I", lambda r: r["bound"]["heterogeneity"]),
        ("bound, term II", lambda r: r["bound"]["amplification"]),
        ("bound, term III", lambda r: r["bound"]["shrinkage"]),
        ("is it valid?", lambda r: "yes" if r["bound"]["valid"] else "no"),
        ("corrected bound", lambda r: r["bound"]["corrected"]),
        ("gap of compiled oracles, max", lambda r: r["static_gap"]["max"]),
        ("same by warm-start, max", lambda r: r["static_gap_warm_start"]["max"]),
        ("measured gap, max", lambda r: r["gap"]["max"]),
        ("measured gap, RMS", lambda r: r["gap"]["rms"]),
        ("policy value gap", lambda r: f"{r['policy_value_gap']:.1f}"),
    ]
    by_client(console, "Against the oracle projection of Q*", rows, lines)
    for r in rows:
        if not r["bound"]["valid"]:
            console.print(f"client {r['client']}: the bound does not apply, {r['bound']['reason']}", soft_wrap=True)


def show_angles(console: Console, angles: Sequence[Mapping[str, Any]]) -> None:
    known = [a for a in angles if "largest" in a]
    wide = [a for a in angles if "largest" not in a]
    if known:
        made = Table(title="How the spans lie", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for column in ("clients i, j", "least angle", "largest", "‖(I−Πi)Πj‖", "‖(I−Πj)Πi‖"):
            made.add_column(column, justify="right")
        for a in known:
            i, j = a["pair"]
            there, back = a["misalignment"]
            made.add_row(f"{i}, {j}", f"{a['smallest']:.2g}°", f"{a['largest']:.1f}°", f"{there:.3f}", f"{back:.3f}")
        console.print(made)
    if wide:
        console.print(
            f"{len(wide)} pairs of spans need up to {max(a['states_needed'] for a in wide):,} states for their angles, "
            "and are left out; where D differs, ‖(I−Πi)Πj‖ is 1 for the larger Dj",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right")
    for row in rows:
        made.add_row(*map(text, row))
    return made


def show_advice(console: Console, advice: Mapping[str, Any]) -> None:
    """The given setting, all sources side by side, and what to change."""
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
    """Left: what the anchors see. Middle: how far from the teacher, by where. Right: why, where policies go."""
    from matplotlib.figure import Figure  # as for curves: who imports this need not wait for it

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
    middle.set(yscale="log", ylabel="RMS distance from the teacher", title="After the exchange, by where")
    middle.set_ylim(top=4 * middle.get_ylim()[1])  # room for the legend
    for k, name in enumerate(("misfit", "held_back")):
        values = [r["errors"]["policy"][name] for r in rows]
        right.bar(x + (k - 0.5) * 0.4, values, 0.36, color=COLOURS[3 + k], label=name.replace("_", " "))
    right.set(ylabel="RMS", title="Why, where policies go")
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
    """gap.json and gap.png in the run's folder."""
    file = Path(run) / "gap.json"
    write_bytes(file, (json.dumps(report, indent=1) + "\n").encode())
    return file, draw(report, file.with_suffix(".png"))
