"""The charts of the results page, made from the rows of result files; each is small enough for a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedqhd.federation.method import METHODS as KINDS
from fedqhd.report.spec import Axis, BarChart, Bars, Line, LineChart, Values
from fedqhd.studies import paper
from fedqhd.studies.ablation import MODES, slope
from fedqhd.studies.main_table import scores
from fedqhd.studies.markdown import Rows, select
from fedqhd.studies.presets import METHODS
from fedqhd.studies.stats import performance_profile

# Methods have the colours of Okabe and Ito, which colour-blind readers can tell apart, and different dashes as well.
STYLE: Mapping[str, Mapping[str, Any]] = {
    kind.name: {"color": kind.style.color, "dash": kind.style.dash, "width": kind.style.width} for kind in KINDS.all()
}
MODE_STYLE: Mapping[str, Mapping[str, Any]] = {
    "overwrite": {"color": "#d55e00", "dash": (4, 2)}, "warm-start": {"color": "#0072b2"},
}  # fmt: skip
MODEL_STYLE: Mapping[str, Mapping[str, Any]] = {
    "fedqhd": {"color": "#d55e00"}, "fedqhd, as in the paper": {"color": "#0072b2", "dash": (6, 2, 1, 2)},
    "dqn": {"color": "#009e73", "dash": (4, 2)},
}  # fmt: skip
DOTTED, GREY = (1, 2), "#777777"
PAPER_SLOPE = -0.525
"""The slope of the gap over D on logarithmic axes, as the paper reports it."""
AMOUNTS = {"zeroed": "share of components zeroed", "flipped": "share of components with the other sign",
           "noised": "share of components with noise", "bits": "bits a weight"}  # fmt: skip


def environments(rows: Rows, order: Sequence[str]) -> list[str]:
    """Return the environments that occur in the rows, in the given order."""
    have = {r["env"] for r in rows}
    return [e for e in order if e in have]


def aligned(values: Mapping[float, float], x: Sequence[float]) -> list[float | None]:
    """Return the value at each x, or None if there is none."""
    return [values.get(at) for at in x]


def marked(method: str) -> str:
    """Return the name of a method as charts and tables show it: oracles have a dagger."""
    return method + ("†" if method in paper.ORACLES else "")


def learning_curves(curves: Rows, env: str, setting: str) -> LineChart:
    """Draw the training return of every method over episodes, for one environment and setting."""
    found = [c for m in METHODS for c in select(curves, method=m, env=env, setting=setting)]
    points = [{c["every"] * (k + 1): k for k in range(len(c["iqm"]))} for c in found]
    x = sorted(set().union(*points))

    def column(values: Sequence[float], at: Mapping[float, int]) -> Values:
        return [values[at[e]] if e in at else None for e in x]

    lines = [
        Line(marked(c["method"]), y=column(c["iqm"], at), low=column(c["lo"], at), high=column(c["hi"], at),
             **STYLE[c["method"]])
        for c, at in zip(found, points, strict=True)
    ]  # fmt: skip
    published = paper.final_return(paper.FEDQHD, env, setting)
    if published:
        y = [published["mean"]] * len(x)
        lines.append(Line("the paper's FedQHD, final", STYLE[paper.FEDQHD]["color"], y, dash=DOTTED, width=1))
    return LineChart(
        title=f"{env}, {setting}", caption=f"Learning curves on {env}, {setting}, with 95 % bands",
        x_axis=Axis("episode", bounds=(0, None), whole=True), y_axis=Axis("training return"), x=x, lines=lines,
    )  # fmt: skip


def profiles(records: Rows, preset: str) -> LineChart:
    """Draw performance profiles: the share of each method's runs above a normalised score, over that score."""
    at = np.linspace(0, 1.1, 111)
    lines = []
    for m in METHODS:
        tasks = list(scores(records, preset, m, "final_return").values())
        if tasks:
            lines.append(Line(marked(m), y=performance_profile(tasks, at).tolist(), **STYLE[m]))
    return LineChart(
        title="Share of runs above a score", caption=f"Performance profiles, preset {preset}", x_axis=Axis("score"),
        y_axis=Axis("share of runs", bounds=(0, None)), x=at.tolist(), lines=lines,
    )  # fmt: skip


def cost_bars(rows: Rows, env: str, setting: str, preset: str) -> BarChart:
    """Draw the minutes that a whole run of each method takes, beside those of the paper."""
    found = [r for m in METHODS for r in select(rows, method=m, env=env, setting=setting)]
    published = [paper.minutes(r["method"], env, setting) for r in found]
    ours = Bars("ours, CPU", [r["cpu_seconds"] / 60 for r in found], [STYLE[r["method"]]["color"] for r in found])
    theirs = Bars("the paper, wall", [p["mean"] if p else None for p in published], ["#999999"] * len(found),
                  hatched=[True] * len(found))  # fmt: skip
    return BarChart(
        title=f"{env}, {setting}", caption=f"Minutes a run on {env}, {setting}, preset {preset}",
        name_axis=Axis("method"), value_axis=Axis("minutes a run (log)", log=10, bounds=(0.05, None)),
        names=[marked(r["method"]) for r in found], bars=[ours, theirs], horizontal=True,
    )  # fmt: skip


def until_bars(rows: Rows, env: str, setting: str) -> BarChart:
    """Draw the CPU seconds until the return of the paper's FedQHD, hatched if not all runs reached it."""
    found = [r for m in METHODS for r in select(rows, method=m, env=env, setting=setting)]
    short = [r["until"]["runs"] - r["until"]["reached"] for r in found]
    texts = [
        f"{r['until']['cpu_seconds']:.0f}" + (f", {n} of {r['until']['runs']} runs short" if n else "")
        for n, r in zip(short, found, strict=True)
    ]
    goal = f"{found[0]['until']['return']:g}".replace("-", "−")
    bars = Bars("", [r["until"]["cpu_seconds"] for r in found], [STYLE[r["method"]]["color"] for r in found],
                hatched=[n > 0 for n in short], texts=texts)  # fmt: skip
    return BarChart(
        title=f"{env}, {setting}", caption=f"CPU seconds until the paper's return on {env}, {setting}",
        name_axis=Axis("method"), value_axis=Axis(f"CPU seconds until {goal}"),
        names=[marked(r["method"]) for r in found], bars=[bars], horizontal=True,
    )  # fmt: skip


def ablation(rows: Rows, over: str, value: str, title: str, study: str) -> LineChart:
    """Draw an ablation: a dot for each run and a line through the means.

    Args:
        rows: The rows of one figure.
        over: The x axis: "D", or "m" for m / D.
        value: The y axis: "gap_rms" or "greedy".
        title: The title of the chart.
        study: The title of the figure, for the caption.
    """
    is_gap = value == "gap_rms"

    def place(r: Mapping[str, Any]) -> float:
        return float(r["D"] if over == "D" else r["m"] / r["D"])

    x = sorted({place(r) for r in rows})
    dots, lines = [], []
    for mode in MODES:
        here = select(rows, compile=mode)
        for seed in sorted({r["seed"] for r in here}):
            runs = {place(r): r[value] for r in select(here, seed=seed)}
            dots.append(Line("", MODE_STYLE[mode]["color"], aligned(runs, x), width=0, dots=True))
        means = {at: float(np.mean([r[value] for r in here if place(r) == at])) for at in {place(r) for r in here}}
        label = mode
        if over == "D" and is_gap:
            b, low, high = slope(here, value)
            label = f"{mode}: slope {b:.2f} [{low:.2f}, {high:.2f}]".replace(" -", " −").replace("[-", "[−")
        lines.append(Line(label, y=aligned(means, x), width=2, **MODE_STYLE[mode]))
    if over == "D" and is_gap:
        first = float(np.mean([r[value] for r in rows if r["D"] == x[0]]))
        y = [first * (D / x[0]) ** PAPER_SLOPE for D in x]
        lines.append(Line(f"the paper's slope, {PAPER_SLOPE:g}".replace("-", "−"), GREY, y, dash=DOTTED))
    return LineChart(
        title=title, caption=f"{title}: {study}", x_axis=Axis("D" if over == "D" else "m / D", log=2),
        y_axis=Axis("gap to the oracle (RMS)" if is_gap else "greedy return", log=10 if is_gap else 0),
        x=x, lines=[*dots, *lines], marker=(1.0, "m = D") if over == "m" else None,
    )  # fmt: skip


def scalability(rows: Rows, env: str) -> BarChart:
    """Draw the return over the number of clients, in both settings."""
    counts = sorted({r["clients"] for r in rows})
    bars = []
    for setting, color in (("homogeneous", "#d55e00"), ("heterogeneous", "#56b4e9")):
        here = {r["clients"]: r["final_return"] for r in select(rows, env=env, setting=setting)}
        values, low, high = ([here[n][k] if n in here else None for n in counts] for k in ("iqm", "lo", "hi"))
        hatched = [setting == "heterogeneous"] * len(counts)
        bars.append(Bars(setting, values, [color] * len(counts), low, high, hatched))
    solved = paper.figures()["scalability"]["solved_threshold"][env]
    return BarChart(
        title=env, caption=f"Return over the number of clients on {env}", name_axis=Axis("clients, N"),
        value_axis=Axis("return, last 30 episodes"), names=[str(n) for n in counts], bars=bars,
        threshold=(solved, "solved"),
    )  # fmt: skip


def robustness(rows: Rows, env: str, damage: str) -> LineChart:
    """Draw the greedy return over the amount of one kind of damage, a key of AMOUNTS."""
    x = sorted({r["amount"] for r in select(rows, env=env, damage=damage)})
    lines = []
    for model, style in MODEL_STYLE.items():
        here = {r["amount"]: r["greedy_return"] for r in select(rows, env=env, damage=damage, model=model)}
        if here:
            y, low, high = (aligned({a: v[k] for a, v in here.items()}, x) for k in ("iqm", "lo", "hi"))
            lines.append(Line(model, y=y, low=low, high=high, dots=True, **style))
    axis = Axis(AMOUNTS[damage], log=2, ticks=tuple(x), reverse=True) if damage == "bits" else Axis(AMOUNTS[damage])
    return LineChart(
        title=env, caption=f"{AMOUNTS[damage].capitalize()}, {env}", x_axis=axis, y_axis=Axis("greedy return"), x=x,
        lines=lines,
    )  # fmt: skip
