"""The tables of the main study, made from its result file alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedqhd.core.presets import PRESETS, SETTINGS
from fedqhd.studies import paper
from fedqhd.studies.markdown import Rows, interval_text, markdown, select
from fedqhd.studies.presets import ENVS, METHODS, Cell, cells, seeds
from fedqhd.studies.stats import interval, performance_profile, pooled_iqm, probability_of_improvement

TITLES = {"tuned": "Preset `tuned`: every method with its own tuned settings",
          "paper": "Preset `paper`: the paper's stated settings"}  # fmt: skip
ABOVE = (0.5, 0.8, 0.9, 0.95)
"""The scores for which the share of runs above them is shown."""


def name(method: str) -> str:
    """Return the name of a method as code; oracles have a dagger."""
    return f"`{method}`†" if method in paper.ORACLES else f"`{method}`"


def expected_seeds(row: Mapping[str, Any]) -> int:
    """Return how many seeds a complete cell of the main table has."""
    return len(seeds(row["preset"], Cell(row["method"], row["env"], row["setting"])))


def seeds_mark(row: Mapping[str, Any]) -> str:
    """Return the mark of a cell that has fewer seeds than expected, else an empty string."""
    return f", {row['seeds']} of {expected_seeds(row)} seeds" if row["seeds"] < expected_seeds(row) else ""


def best(rows: Rows, env: str, setting: str, measure: str = "final_return") -> set[str]:
    """Return the methods with the highest interquartile mean in a cell, without oracles; several if they tie."""
    here = {r["method"]: r[measure]["iqm"] for r in select(rows, env=env, setting=setting)}
    rivals = {m: v for m, v in here.items() if m not in paper.ORACLES}
    return {m for m, v in rivals.items() if v == max(rivals.values())}


def wins(rows: Rows, method: str = paper.FEDQHD) -> tuple[int, int]:
    """Return in how many cells a method is the best, oracles excluded, and in how many it was run beside others."""
    measured = [(e, s) for e in ENVS for s in SETTINGS if len(select(rows, env=e, setting=s)) > 1
                and select(rows, env=e, setting=s, method=method)]  # fmt: skip
    return sum(method in best(rows, e, s) for e, s in measured), len(measured)


def standing(rows: Rows, preset: str) -> list[str]:
    """Return sentences on how FedQHD compares with other methods in a preset, and on cells that are missing."""
    count, measured = wins(rows)
    rivals = [c for c in cells() if c.method not in paper.ORACLES]
    left = [c for c in rivals if not select(rows, method=c.method, env=c.env, setting=c.setting)]
    fewer = [r for r in rows if r["seeds"] < expected_seeds(r)]
    found = []
    if measured:
        found.append(f"FedQHD is best of the non-oracle methods{' run so far' * bool(left)}, or level with the best, "
                     f"in {count} of {measured} cells; in the paper in 5 of 8, against its own baselines.")  # fmt: skip
    if left:
        found.append(f"Of their {len(rivals)} cells {len(left)} have not been run, e.g. {left[0].name}.")
    if fewer:
        listed = ", ".join(f"{r['env']} {r['method']} {r['setting']}{seeds_mark(r)}" for r in fewer[:5])
        found.append(f"Cells with fewer seeds than meant: {len(fewer)}; {listed}{', ...' * (len(fewer) > 5)}.")
    return found


def grid(rows: Rows, text: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Return a table with a line for each method and a column for each environment and setting.

    Args:
        rows: The rows of one preset.
        text: Makes the text of a cell from its row. Cells without a row contain a dash.
    """
    columns = [(e, s) for e in ENVS for s in SETTINGS]
    head = ["", *(f"{e.partition('-')[0]}, {s.removesuffix('eneous')}." for e, s in columns)]
    body = []
    for m in METHODS:
        found = [select(rows, method=m, env=e, setting=s) for e, s in columns]
        if any(found):
            body.append([name(m), *(text(f[0]) + seeds_mark(f[0]) if f else "–" for f in found)])
    return markdown(head, body)


def main_table(rows: Rows, measure: str = "final_return") -> list[str]:
    """Return the table of "final_return", beside the paper's, or of "greedy_return"."""

    def text(r: Mapping[str, Any]) -> str:
        v = r[measure]
        value = f"{v['iqm']:.1f}"
        value = f"**{value}**" if r["method"] in best(rows, r["env"], r["setting"], measure) else value
        beside = paper.final_return(r["method"], r["env"], r["setting"]) if measure == "final_return" else None
        return f"{value} [{v['lo']:.1f}, {v['hi']:.1f}]" + (f" ({beside['mean']:.1f})" if beside else "")

    return grid(rows, text)


def mean_table(rows: Rows) -> list[str]:
    """Return the table of means and standard deviations of the final return, beside the paper's."""

    def text(r: Mapping[str, Any]) -> str:
        v, beside = r["final_return"], paper.final_return(r["method"], r["env"], r["setting"])
        theirs = f" ({beside['mean']:.1f} ± {beside['std']:.1f})" if beside else ""
        return f"{v['mean']:.1f} ± {v['std']:.1f}{theirs}"

    return grid(rows, text)


def distance_table(rows: Rows) -> list[str]:
    """Return the table of differences from the paper's mean, or "within" if our interval contains it."""

    def text(r: Mapping[str, Any]) -> str:
        v, theirs = r["final_return"], paper.final_return(r["method"], r["env"], r["setting"])
        if not theirs:
            return "–"
        return "within" if v["lo"] <= theirs["mean"] <= v["hi"] else f"{v['iqm'] - theirs['mean']:+.1f}"

    return grid(rows, text)


def cost_table(rows: Rows) -> list[str]:
    """Return the table of CPU and wall minutes of a run, beside the paper's wall minutes."""

    def text(r: Mapping[str, Any]) -> str:
        beside = paper.minutes(r["method"], r["env"], r["setting"])
        theirs = f" ({beside['mean']:.1f})" if beside else ""
        return f"{r['cpu_seconds'] / 60:.1f} / {r['wall_seconds'] / 60:.1f}{theirs}"

    return grid(rows, text)


def targets_table(rows: Rows) -> list[str]:
    """Return the table of FedQHD's tuned cells beside the returns that they should reach."""
    body = []
    for e in ENVS:
        for k, s in enumerate(SETTINGS):
            found = select(rows, method=paper.FEDQHD, env=e, setting=s)
            if not found:
                continue
            v, (least, goal) = found[0]["final_return"], (t[k] for t in paper.TARGETS[e])
            published = paper.final_return(paper.FEDQHD, e, s) or {}
            verdict = "goal" if v["iqm"] >= goal else "at least" if v["iqm"] >= least else "**short of it**"
            body.append([f"{e}, {s}", f"{published['mean']:.1f}", str(least), str(goal),
                         interval_text(v) + seeds_mark(found[0]), verdict])  # fmt: skip
    return markdown(["", "the paper's FedQHD", "at least", "goal", "ours", "reached"], body)


def scores(records: Rows, preset: str, method: str, measure: str) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    """Return the normalised scores of a method's runs by environment and setting."""
    return {
        (r["env"], r["setting"]): np.array([paper.normalised(r["env"], x[measure]) for x in r["runs"]])
        for r in select(records, preset=preset, method=method) if r["runs"]
    }  # fmt: skip


def comparison(records: Rows, preset: str, measure: str = "final_return") -> list[str]:
    """Return the table over all cells: scores, probabilities of improvement, and shares of runs above a score."""
    ours = scores(records, preset, paper.FEDQHD, measure)
    body = []
    for m in METHODS:
        found = scores(records, preset, m, measure)
        if not found:
            continue
        tasks = list(found.values())
        lo, hi = interval(tasks, pooled_iqm)
        both = [c for c in found if c in ours]
        better = "–"
        if m != paper.FEDQHD and both:
            p, low, high = probability_of_improvement([ours[c] for c in both], [found[c] for c in both])
            better = f"{p:.2f} [{low:.2f}, {high:.2f}]"
        profile = performance_profile(tasks, np.array(ABOVE))
        body.append([name(m), str(len(tasks)), f"{pooled_iqm(*tasks):.3f} [{lo:.3f}, {hi:.3f}]", better,
                     *(f"{x:.2f}" for x in profile)])  # fmt: skip
    head = ["", "cells", "score (IQM)", "fedqhd better than it", *(f"runs above {a}" for a in ABOVE)]
    return markdown(head, body)


def failures(records: Rows) -> list[str]:
    """Return the section on runs that failed."""
    lines = [
        f"- {r['preset']}, {r['env']}, {r['method']}, {r['setting']}, seed {f['seed']}: {f['error']}"
        for r in records for f in r["failed"]
    ]  # fmt: skip
    return ["## Runs that failed", "", *(lines or ["None."]), ""]


def missing(rows: Rows) -> list[str]:
    """Return the section on cells that have not been run yet, empty if there are none."""
    done = {(r["preset"], r["method"], r["env"], r["setting"]) for r in rows}
    lines = []
    for preset in PRESETS:
        left = [c for c in cells() if (preset, *c) not in done]
        if left:
            lines.append(f"- preset `{preset}`: {len(left)} of {len(cells())} cells, e.g. {left[0].name}")
    return ["## Not run yet", "", *lines, ""] if lines else []


def commands(records: Rows) -> list[str]:
    """Return the section with the command of each cell."""
    lines = ["## The settings behind every number", "", "A run of each cell by itself, with `--seed` 0, 1, 2, ...:", ""]
    for preset in PRESETS:
        here = select(records, preset=preset)
        if here:
            lines += [f"Preset `{preset}`:", "", "```"]
            for r in here:
                commits = ", ".join(sorted({x["commit"] for x in r["runs"]}))
                lines.append(f"{r['command']}   # {r['method']}; {len(r['runs'])} seeds at {commits or '–'}")
            lines += ["```", ""]
    return lines


HEAD = """# Results

Made by `fedqhd report` from the files in results/, which `fedqhd reproduce` wrote: see
[docs/reproduce.md](docs/reproduce.md).

*Final return*: training, last 100 episodes, mean of the clients. *Greedy*: 20 fresh episodes a client after training.
Interquartile mean over seeds with its 95 % bootstrap interval; in brackets the paper's mean of three seeds. **Bold**:
best non-oracle. †: oracle, which pools the data of all clients. Ten seeds for fedqhd and independent-qhd in preset
`tuned`, five for the others, three in preset `paper`, where fewer are not said. Homog.: one encoder or network for all;
heterog.: each its own.
"""
SCORES = """Over all cells: scores are returns put on one scale, on which 0 is about a random policy and 1 about the
best known (CartPole 22 to 500, Acrobot −500 to −75, LunarLander −180 to 250, MountainCar −200 to −100). *Better*: the
chance that a run of fedqhd is better than one of the method in the same cell. Intervals by stratified bootstrap.
"""


def measured(rows: Rows) -> Rows:
    """Return the rows of cells that have a finished run."""
    return [r for r in rows if r["runs"]]


def table(records: Rows) -> list[str]:
    """Return all tables of both presets, and the sections on missing cells and failed runs."""
    rows = measured(records)
    lines = [HEAD]
    for preset in PRESETS:
        here = select(rows, preset=preset)
        if not here:
            continue
        lines += [f"## {TITLES[preset]}", "", *standing(here, preset), ""]
        lines += ["Final return:", "", *main_table(here)]
        if preset == "tuned":
            lines += ["What FedQHD was meant to reach:", "", *targets_table(here)]
        else:
            lines += ["Ours less the paper's, or *within* where our interval has the paper's mean; the reasons are in",
                      "[docs/deviations.md](docs/deviations.md):", "", *distance_table(here)]  # fmt: skip
        lines += ["Greedy return:", "", *main_table(here, "greedy_return")]
        lines += ["Mean ± standard deviation of the final return, as the paper has it:", "", *mean_table(here)]
        lines += [SCORES, *comparison(records, preset)]
        lines += ["CPU / wall minutes a run on one core, training and federation (the paper's wall minutes):", "",
                  *cost_table(here)]  # fmt: skip
    return [*lines, *missing(rows), *failures(records)]
