"""The ablation figures: learning curves, Q-error and policy value, for both modes of compilation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from fedqhd.runs.outcome import smooth
from fedqhd.studies.ablation import MODES, slope
from fedqhd.studies.markdown import Rows, select

STYLE = {"overwrite": ("#d55e00", "--", "s"), "warm-start": ("#0072b2", "-", "o")}


def draw(rows: Rows, over: str, path: Path, *, is_trained: bool, title: str) -> Path:
    """Draw one figure of an ablation.

    Args:
        rows: The rows of the figure, with their learning curves.
        over: "D" or "m"; for "m", the x axes show m / D, and the paper's transition is marked at 1.
        path: The file to write.
        is_trained: Whether the rows are those of trained runs.
        title: The title of the figure.

    Returns:
        The path of the file.
    """
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    values = sorted({r[over] for r in rows})
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(values)))
    for value, colour in zip(values, colours, strict=True):
        for mode in MODES:
            y = np.mean([r["curve"] for r in select(rows, **{over: value, "compile": mode})], axis=0)
            y = smooth(y, max(1, len(y) // 10)) if is_trained else y
            label = f"{over}={value}" if mode == "warm-start" else None
            left.plot(np.arange(1, len(y) + 1), y, color=colour, ls=STYLE[mode][1], lw=1.4, label=label)
    if is_trained:
        left.set(xlabel="episode", ylabel="return", title="Learning curves")
    else:
        left.set(xlabel="exchange", ylabel="RMS error against Q*", yscale="log", title="Learning by regression")
    for mode in MODES:
        colour, line, mark = STYLE[mode]
        here = select(rows, compile=mode)
        x = np.array([r[over] / (r["D"] if over == "m" else 1) for r in here])
        at = np.unique(x)
        for axes, key in ((middle, "gap_rms"), (right, "greedy")):
            y = np.array([r[key] for r in here])
            label = mode
            if key == "gap_rms" and over == "D":
                b, low, high = slope(here, key)
                label = f"{mode}: slope {b:.2f} [{low:.2f}, {high:.2f}]"
            axes.plot(x, y, mark, color=colour, ms=4, alpha=0.5)
            axes.plot(at, [y[x == v].mean() for v in at], line, color=colour, lw=1.8, label=label)
        wide = np.array([r["gap_everywhere_rms"] for r in here])
        middle.plot(
            at, [wide[x == v].mean() for v in at], line, color=colour, lw=1, alpha=0.45, label=f"{mode}, everywhere"
        )
    if over == "D":
        scale = np.mean([r["gap_rms"] for r in select(rows, D=values[0])])
        middle.plot(values, scale * (np.array(values) / values[0]) ** -0.5, ":", color="grey", label="slope −1/2")
    else:
        for axes in (middle, right):
            axes.axvline(1.0, color="grey", ls=":")
    middle.set(
        xscale="log", yscale="log", ylabel="gap to the oracle projection (RMS)", title="Q-error at held-out anchors"
    )
    if not is_trained:
        oracle = {v: np.mean([r["greedy_oracle"] for r in select(rows, **{over: v})]) for v in values}
        divide = rows[0]["D"] if over == "m" else 1
        right.plot([v / divide for v in values], list(oracle.values()), color="black", lw=1, label="oracle projection")
    right.set(xscale="log", ylabel="greedy return", title="Policy value")
    for axes in (middle, right):
        axes.set_xlabel("D" if over == "D" else "m / D")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=7, ncols=2 if axes is left else 1)
    figure.suptitle(f"{title} (solid: warm-start, dashed: overwrite)", x=0.01, ha="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
