"""The figure of one run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedqhd.core.files import write_bytes
from fedqhd.runs.outcome import smooth, training_returns
from fedqhd.runs.summary import read_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves_figure(folder: Path) -> Figure:
    """Draw the learning curves of a run, one for each client and their mean."""
    # Imported after training, which need not wait for them: importing matplotlib takes a third of a second.
    from matplotlib.figure import Figure

    from fedqhd.studies.grouping import smoothing

    summary = read_summary(folder)
    returns = training_returns(folder, summary["clients"], summary["episodes"])
    width = smoothing(summary["episodes"])
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    # Clients that skip rounds play fewer episodes; the mean is over those that played an episode.
    mean = np.nanmean(returns[:, ~np.isnan(returns).all(axis=0)], axis=0)
    styles: list[dict[str, Any]] = [{"color": "#0072b2", "alpha": 0.35, "lw": 1}] * len(returns) + [
        {"color": "#d55e00", "lw": 2.5}
    ]
    labels = ["each client", *[None] * (len(returns) - 1), "mean of clients"]
    for y, style, label in zip([*returns, mean], styles, labels, strict=True):
        played = y[~np.isnan(y)]
        axes.plot(np.arange(1, len(played) + 1), smooth(played, width), label=label, **style)
    axes.set_xlabel("episode")
    axes.set_ylabel(f"return (mean of {width} episodes)")
    axes.set_title(
        f"{summary['env']}: {summary['method']}, {summary['setting']}, {summary['learner']} learner — "
        f"final {summary['final_return']:.1f}, greedy {summary['greedy_return']:.1f}",
        loc="left", fontsize=11,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.margins(x=0.01)
    axes.legend(frameon=False)
    return figure


def curves(folder: Path) -> Path:
    """Write the learning curves of a run to curves.png in its folder, and return the path."""
    path, picture = folder / "curves.png", io.BytesIO()
    curves_figure(folder).savefig(picture, dpi=120)
    write_bytes(path, picture.getvalue())
    return path
