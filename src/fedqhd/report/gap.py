"""The federation gap of a run, as tables in the terminal and as a figure; drawn from gap.json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

from fedqhd.experiment.advise import flags
from fedqhd.experiment.gap import verdict
from fedqhd.experiment.states import SOURCES
from fedqhd.files import write_bytes

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # after the backend is chosen

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right")
    for row in rows:
        made.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row))
    return made


def show(console: Console, report: Mapping[str, Any]) -> None:
    """What the anchors see, what the exchange did, and, with a Q*, the paper's bound beside what was measured."""
    rows, lam = report["clients"], report["lam"]
    console.print(
        f"{report['env']}: last exchange of {len(rows)} QHD clients through {report['anchors']} anchors "
        f"({report['anchor_source']}), {report['compile']}, lam {lam:g}; measured on {report['states']:,} states",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    console.print(
        table(
            "What the anchors see",
            ("client", "D", "rank", f"effective rank at {lam:g}", "γ", "condition", "W outside row(X)"),
            [
                (
                    r["client"],
                    r["D"],
                    f"{r['rank']} of {r['features']}",
                    r["effective_rank"],
                    r["gamma"],
                    r["condition"],
                    r["outside_row_space"],
                )
                for r in rows
            ],
        )
    )
    console.print(
        table(
            "Distance from the teacher (RMS), before → after",
            ("client", "at anchors", *SOURCES, "misfit", "held back", "greedy changed", "greedy return"),
            [
                (
                    r["client"],
                    r["anchor_residual"],
                    *(f"{r['errors'][k]['before']:.3g} → {r['errors'][k]['after']:.3g}" for k in SOURCES),
                    r["errors"]["policy"]["misfit"],
                    r["errors"]["policy"]["held_back"],
                    f"{100 * r['errors']['policy']['greedy_changed']:.1f} %",
                    f"{r['greedy_before']:.1f} → {r['greedy_after']:.1f}",
                )
                for r in rows
            ],
        )
    )
    if report["reference"]:
        show_bound(console, rows)
    for r in rows:
        console.print(f"client {r['client']}: {verdict(r)}", highlight=False, soft_wrap=True)
    for a in report["angles"]:
        if "largest" in a:
            console.print(
                f"spans {a['pair'][0]} and {a['pair'][1]}: angles {a['smallest']:.2g}° to {a['largest']:.1f}°, "
                f"||(I-Π_i)Π_j|| {a['misalignment'][0]:.3f} and {a['misalignment'][1]:.3f}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
    wide = [a for a in report["angles"] if "largest" not in a]
    if wide:
        console.print(
            f"{len(wide)} pairs of spans need up to {max(a['states_needed'] for a in wide):,} states for their angles, "
            "and are left out; where D differs, ||(I-Π_i)Π_j|| is 1 for the larger one",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def show_bound(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    console.print(
        table(
            "Against the oracle projection of Q*",
            (
                "client",
                "h̄",
                "term I",
                "term II",
                "term III",
                "valid",
                "corrected bound",
                "gap of compiling oracles",
                "warm-start",
                "measured gap: max",
                "RMS",
                "policy value gap",
            ),
            [
                (
                    r["client"],
                    b["h_bar"],
                    b["heterogeneity"],
                    b["amplification"],
                    b["shrinkage"],
                    "yes" if b["valid"] else "no",
                    b["corrected"],
                    r["static_gap"]["max"],
                    r["static_gap_warm_start"]["max"],
                    r["gap"]["max"],
                    r["gap"]["rms"],
                    r["policy_value_gap"],
                )
                for r in rows
                for b in [r["bound"]]
            ],
        )
    )
    for r in rows:
        if not r["bound"]["valid"]:
            console.print(f"client {r['client']}: the bound does not apply, {r['bound']['reason']}", soft_wrap=True)


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
    columns = ("", "anchors from", "m", "lam", "effective rank", "leave-one-out error", "held-out error")
    console.print(table("Errors of compiled values, as a share of their spread", columns, rows))
    word = "well" if advice["well_conditioned"] else "not well"
    console.print(f"given: {word} conditioned; {advice['reason']}", highlight=False, soft_wrap=True)
    if not advice["well_conditioned"]:
        console.print(f"change it to: {flags(advised)}", highlight=False, soft_wrap=True)


def draw(report: Mapping[str, Any], path: Path) -> Path:
    """Left: what the anchors see. Middle: how far from the teacher, by where. Right: why, where policies go."""
    rows, lam = report["clients"], report["lam"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
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
    for axes in (middle, right):
        axes.set_xticks(x, [f"{r['client']}\nD={r['D']}" for r in rows])
        axes.set_xlabel("client")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=4 if axes is middle else 1)
    figure.suptitle(
        f"{report['env']}: {report['anchors']} anchors ({report['anchor_source']}), {report['compile']}",
        x=0.01, ha="left", fontsize=11,
    )  # fmt: skip
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def write(report: Mapping[str, Any], run: str | Path) -> tuple[Path, Path]:
    """gap.json and gap.png in the run's folder."""
    file = Path(run) / "gap.json"
    write_bytes(file, (json.dumps(report, indent=1) + "\n").encode())
    return file, draw(report, file.with_suffix(".png"))
