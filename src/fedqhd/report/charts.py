"""The charts of the page, each small enough for a phone: figures in, pictures out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedqhd.studies import paper
from fedqhd.studies.ablation import MODES, slope
from fedqhd.studies.main_table import scores
from fedqhd.studies.markdown import Rows, of
from fedqhd.studies.presets import METHODS

# Okabe and Ito's colours, told apart by everybody, and a dash of its own for each method besides.
STYLE: Mapping[str, Mapping[str, Any]] = {
    "independent-qhd": {"color": "#56b4e9", "ls": (0, (4, 2))},
    "truncated-fedavg-qhd": {"color": "#e69f00", "ls": (0, (1, 1))},
    "fedavg-dqn": {"color": "#009e73", "ls": (0, (5, 1, 1, 1))},
    "distilled-feddqn": {"color": "#cc79a7", "ls": (0, (3, 1, 1, 1, 1, 1))},
    "fedqhd": {"color": "#d55e00", "ls": "-", "lw": 2.4, "zorder": 5},
    "oracle-qhd": {"color": "#000000", "ls": (0, (6, 2))},
    "oracle-dqn": {"color": "#777777", "ls": (0, (2, 2))},
}
MODE_STYLE = {"overwrite": ("#d55e00", "--", "s"), "warm-start": ("#0072b2", "-", "o")}
MODEL_STYLE = {
    "fedqhd": ("#d55e00", "-", "o"), "fedqhd, as in the paper": ("#0072b2", "-.", "^"), "dqn": ("#009e73", "--", "s"),
}  # fmt: skip


def panel(title: str, xlabel: str, ylabel: str, height: float = 3.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.4, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylabel(ylabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def svg(figure: Figure) -> str:
    """Text stays text, so that it is sharp at every size; the same figure is the same file."""
    picture = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedqhd"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    text = picture.getvalue()
    return text[text.index("<svg") :]


def legend(axes: Axes, **others: Any) -> None:
    axes.legend(frameon=False, fontsize=7, **others)


def learning_curves(curves: Rows, env: str, setting: str) -> Figure:
    figure, axes = panel(f"{env}, {setting}", "episode", "training return", 3.3)
    for m in METHODS:
        for c in of(curves, method=m, env=env, setting=setting):
            x = c["every"] * np.arange(1, len(c["iqm"]) + 1)
            axes.plot(x, c["iqm"], label=m + ("†" if m in paper.ORACLES else ""), **{"lw": 1.5, **STYLE[m]})
            axes.fill_between(x, c["lo"], c["hi"], color=STYLE[m]["color"], alpha=0.15, lw=0)
    published = paper.final_return(paper.FEDQHD, env, setting)
    if published:
        axes.axhline(published["mean"], color="#d55e00", lw=0.8, ls=":", label="the paper's FedQHD, final")
    legend(axes, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def cost_bars(rows: Rows, env: str, setting: str) -> Figure:
    figure, axes = panel(f"{env}, {setting}", "minutes a run (log)", "", 2.8)
    here = [r for m in reversed(METHODS) for r in of(rows, method=m, env=env, setting=setting)]
    at = np.arange(len(here))
    axes.barh(at + 0.2, [r["cpu_seconds"] / 60 for r in here], 0.38, color=[STYLE[r["method"]]["color"] for r in here],
              label="ours, CPU")  # fmt: skip
    published = [paper.minutes(r["method"], env, setting) for r in here]
    theirs = [(y, p["mean"]) for y, p in zip(at, published, strict=True) if p]
    axes.barh([y - 0.2 for y, _ in theirs], [v for _, v in theirs], 0.38, color="#dddddd", edgecolor="#555555",
              hatch="///", label="the paper, wall")  # fmt: skip
    axes.set_yticks(at, [r["method"] for r in here], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(left=0.05)
    legend(axes, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    return figure


def until_bars(rows: Rows, env: str, setting: str) -> Figure:
    """CPU seconds to the return of the paper's FedQHD; hatched where some runs had spent all theirs before."""
    here = [r for m in reversed(METHODS) for r in of(rows, method=m, env=env, setting=setting)]
    figure, axes = panel(f"{env}, {setting}", f"CPU seconds until {here[0]['until']['return']:g}", "", 2.4)
    at = np.arange(len(here))
    spent = [r["until"]["cpu_seconds"] for r in here]
    short = [r["until"]["runs"] - r["until"]["reached"] for r in here]
    bars = axes.barh(at, spent, 0.6, color=[STYLE[r["method"]]["color"] for r in here], edgecolor="white",
                     hatch=["///" if n else "" for n in short])  # fmt: skip
    told = [f" {s:.0f}" + (f", {n} of {r['until']['runs']} runs short" if n else "")
            for s, n, r in zip(spent, short, here, strict=True)]  # fmt: skip
    axes.bar_label(bars, told, fontsize=7)
    axes.set_yticks(at, [r["method"] for r in here], fontsize=8)
    axes.margins(x=0.35)
    return figure


def profiles(records: Rows, preset: str) -> Figure:
    figure, axes = panel("Share of runs above a score", "score", "share", 3.3)
    at = np.linspace(0, 1.1, 111)
    for m in METHODS:
        tasks = list(scores(records, preset, m, "final_return").values())
        if tasks:
            share = np.mean([(t[:, None] > at).mean(axis=0) for t in tasks], axis=0)
            axes.plot(at, share, label=m, **{"lw": 1.5, **STYLE[m]})
    legend(axes, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return figure


def ablation(rows: Rows, over: str, value: str, title: str) -> Figure:
    """The gap, or the greedy return, over D or over m / D."""
    names = {"gap_rms": "gap to the oracle projection (RMS)", "greedy": "greedy return"}
    figure, axes = panel(title, "D" if over == "D" else "m / D", names[value])
    for mode in MODES:
        colour, line, mark = MODE_STYLE[mode]
        mine = of(rows, compile=mode)
        x = np.array([r[over] / (r["D"] if over == "m" else 1) for r in mine])
        y = np.array([r[value] for r in mine])
        label = mode
        if over == "D" and value == "gap_rms":
            b, low, high = slope(mine, value)
            label = f"{mode}: slope {b:.2f} [{low:.2f}, {high:.2f}]"
        axes.plot(x, y, mark, color=colour, ms=3, alpha=0.45)
        axes.plot(np.unique(x), [y[x == v].mean() for v in np.unique(x)], line, color=colour, lw=1.8, label=label)
    if over == "D" and value == "gap_rms":
        D = np.unique([r["D"] for r in rows])
        first = np.mean([r[value] for r in rows if r["D"] == D[0]])
        axes.plot(D, first * (D / D[0]) ** -0.525, ":", color="grey", label="the paper's slope, −0.525")
    if over == "m":
        axes.axvline(1.0, color="grey", ls=":", lw=1)
    axes.set_xscale("log")
    if value == "gap_rms":
        axes.set_yscale("log")
    legend(axes)
    return figure


def scalability(rows: Rows, env: str) -> Figure:
    figure, axes = panel(env, "clients, N", "return, last 30 episodes")
    counts = sorted({r["clients"] for r in rows})
    for k, setting in enumerate(("homogeneous", "heterogeneous")):
        here = {r["clients"]: r["final_return"] for r in of(rows, env=env, setting=setting)}
        at = [i for i, n in enumerate(counts) if n in here]
        values = [here[counts[i]] for i in at]
        errors = [[v["iqm"] - v["lo"] for v in values], [v["hi"] - v["iqm"] for v in values]]
        axes.bar([i + 0.4 * k - 0.2 for i in at], [v["iqm"] for v in values], 0.38, yerr=errors, capsize=3,
                 color=("#d55e00", "#56b4e9")[k], hatch=("", "//")[k], edgecolor="white", label=setting)  # fmt: skip
    axes.set_xticks(range(len(counts)), list(map(str, counts)))
    solved = paper.figures()["scalability"]["solved_threshold"]
    axes.axhline(solved[env], color="#b00000", ls="--", lw=1, label="solved")
    legend(axes, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


AMOUNTS = {"zeroed": "share of components zeroed", "flipped": "share of components with the other sign",
           "noised": "share of components with noise", "bits": "bits a weight"}  # fmt: skip


def robustness(rows: Rows, env: str, damage: str) -> Figure:
    figure, axes = panel(env, AMOUNTS[damage], "greedy return")
    for model, (colour, line, mark) in MODEL_STYLE.items():
        here = sorted(of(rows, env=env, damage=damage, model=model), key=lambda r: r["amount"])
        if here:
            x, values = [r["amount"] for r in here], [r["greedy_return"] for r in here]
            axes.plot(x, [v["iqm"] for v in values], line, marker=mark, ms=4, color=colour, label=model)
            axes.fill_between(x, [v["lo"] for v in values], [v["hi"] for v in values], color=colour, alpha=0.15, lw=0)
    if damage == "bits":
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8, 32], ["1", "2", "4", "8", "32"])
        axes.invert_xaxis()
    legend(axes, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def environments(rows: Sequence[Mapping[str, Any]], order: Sequence[str]) -> list[str]:
    have = {r["env"] for r in rows}
    return [e for e in order if e in have]
