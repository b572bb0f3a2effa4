"""The contents of the results page, tab by tab."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from fedqhd.core.presets import PRESETS, SETTINGS
from fedqhd.report import charts
from fedqhd.report.collect import ablations, read_rows
from fedqhd.report.spec import BarChart, LineChart
from fedqhd.studies import paper
from fedqhd.studies.main_table import TITLES, best, measured, standing
from fedqhd.studies.markdown import Rows, select
from fedqhd.studies.presets import ENVS, METHODS

LEGEND = """★: best method that is not an oracle; †: oracle, which pools the data of all clients. Values are
interquartile means over seeds, with 95 % bootstrap intervals in brackets and the paper's mean of three seeds below.
Homog.: all clients share one encoder or network; heterog.: each has its own."""


class TableCell(NamedTuple):
    """A cell of a table, highlighted if it is the best of its column."""

    text: str
    notes: tuple[str, ...] = ()
    """Smaller lines below the text."""
    best: bool = False


class Table(NamedTuple):
    """A table, with the name and the cells of each row."""

    title: str
    head: list[str]
    """The heads of the columns, which may contain line breaks."""
    rows: list[tuple[str, list[TableCell]]]


class Film(NamedTuple):
    """The recording of a learned policy: its first frame as PNG and all frames as GIF, both in base64."""

    env: str
    still: str
    moving: str


@dataclass
class Section:
    """Part of a tab; its fields are shown in this order. In texts, backquotes enclose code."""

    heading: str = ""
    text: str = ""
    tables: list[Table] = field(default_factory=list)
    charts: Sequence[LineChart | BarChart] = field(default_factory=list)
    films: list[Film] = field(default_factory=list)
    commands: str = ""
    folded: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a summary and the commands that unfold below it."""
    points: list[str] = field(default_factory=list)
    note: str = ""


class Tab(NamedTuple):
    """A tab of the page; `name` is its address, the part of the URL after #."""

    name: str
    title: str
    sections: list[Section]


def main_table(rows: Rows, measure: str, title: str) -> Table:
    """Return the main table of one preset: our values with intervals, the paper's, and a mark for the best method."""
    columns = [(e, s) for e in ENVS for s in SETTINGS]

    def cell(method: str, env: str, setting: str) -> TableCell:
        found = select(rows, method=method, env=env, setting=setting)
        if not found:
            return TableCell("–")
        value, is_best = found[0][measure], method in best(rows, env, setting, measure)
        published = paper.final_return(method, env, setting) if measure == "final_return" else None
        notes = [f"[{value['lo']:.1f}, {value['hi']:.1f}]", *([f"paper {published['mean']:.1f}"] if published else [])]
        return TableCell(("★ " if is_best else "") + f"{value['iqm']:.1f}", tuple(notes), is_best)

    head = ["method", *(f"{e.partition('-')[0]}\n{s.removesuffix('eneous')}." for e, s in columns)]
    have = [m for m in METHODS if select(rows, method=m)]
    return Table(title, head, [(charts.marked(m), [cell(m, e, s) for e, s in columns]) for m in have])


def main_tab(rows: Rows, records: Rows) -> Tab:
    """Return the main tables. `rows` are the cells with finished runs, `records` all rows of main.json."""
    sections = []
    for preset in PRESETS:
        here = select(rows, preset=preset)
        if here:
            tables = [main_table(here, "final_return", "Final return (training, last 100 episodes)"),
                      main_table(here, "greedy_return", "Greedy return")]  # fmt: skip
            sections.append(
                Section(TITLES[preset], " ".join(standing(here, preset)), tables, [charts.profiles(records, preset)])
            )
    return Tab("main", "Main table", [*sections, Section(note=LEGEND)])


def curves_tab(curves: Rows) -> Tab:
    """Return the learning curves of the first preset that has any."""
    preset = next((p for p in PRESETS if select(curves, preset=p)), PRESETS[0])
    here = select(curves, preset=preset)
    drawn = [
        charts.learning_curves(here, e, s) for e in charts.environments(here, ENVS) for s in SETTINGS
        if select(here, env=e, setting=s)
    ]  # fmt: skip
    text = (f"Preset `{preset}`: interquartile mean over seeds of the clients' mean return, smoothed over 20 episodes, "
            "with 95 % bands.")  # fmt: skip
    return Tab("curves", "Learning curves", [Section(text=text, charts=drawn)])


def cost_tab(rows: Rows, costs: Rows) -> Tab:
    """Return the costs: CPU seconds until the paper's return, and minutes of whole runs."""
    sections = [Section(text="Time for training and federation of one run on one core, without evaluation. The paper "
                             "used another machine: compare methods, not columns.")]  # fmt: skip
    tuned = select(costs, preset="tuned")
    drawn = [
        charts.until_bars(tuned, e, s) for e in charts.environments(tuned, ENVS) for s in SETTINGS
        if select(tuned, env=e, setting=s)
    ]  # fmt: skip
    if drawn:
        text = ("CPU seconds until the mean of the last 100 training episodes reaches that of the paper's FedQHD after "
                "600 episodes; tuned settings, median over seeds. A run that does not reach it counts with its whole "
                "CPU time, and the bar of its method is hatched.")  # fmt: skip
        sections.append(Section("Until the paper's return", text, charts=drawn))
    for preset in PRESETS:
        here = select(rows, preset=preset)
        whole = [
            charts.cost_bars(here, e, s, preset) for e in charts.environments(here, ENVS) for s in SETTINGS
            if select(here, env=e, setting=s)
        ]  # fmt: skip
        if whole:
            sections.append(Section(f"Whole runs. {TITLES[preset]}", charts=whole))
    return Tab("cost", "Cost", sections)


def ablation_tab(found: Mapping[str, Mapping[str, Any]]) -> Tab:
    """Return the ablations, as `fedqhd.report.collect.ablations` collects them."""
    sections = [
        Section(text="CartPole. The paper reports a slope of −0.525 over D with m = 4D, and a transition at m = D.")
    ]
    for key, one in found.items():
        over = one["over"]
        drawn = [charts.ablation(one["rows"], over, value, name, key)
                              for value, name in (("gap_rms", "Q-error"), ("greedy", "Policy value"))]  # fmt: skip
        note = f"Commit `{one['commit']}`: `{one['command']}`"
        sections.append(Section(key[0].upper() + key[1:], charts=drawn, note=note))
    return Tab("ablations", "Ablations", sections)


def scalability_tab(rows: Rows) -> Tab:
    """Return the returns by number of clients."""
    gains = ", ".join(f"{e} +{v} %" for e, v in paper.figures()["scalability"]["gain_over_N1_percent"].items())
    drawn = [charts.scalability(rows, e) for e in charts.environments(rows, ENVS)]
    text = f"The paper's gain of N = 20 over N = 1: {gains}."
    return Tab("scalability", "Scalability", [Section(text=text, charts=drawn)])


def robustness_tab(rows: Rows) -> Tab:
    """Return the returns of damaged policies."""
    sections = [Section(text="Greedy return when components of hypervectors, or weights of the network, are damaged, "
                             "and when weights are stored in fewer bits.")]  # fmt: skip
    for damage, name in charts.AMOUNTS.items():
        here = select(rows, damage=damage)
        if here:
            drawn = [charts.robustness(here, e, damage) for e in charts.environments(here, ENVS)]
            sections.append(Section(name.capitalize(), charts=drawn))
    return Tab("robustness", "Robustness", sections)


def policies_tab(folder: Path) -> Tab | None:
    """Return the recordings in a folder, or None if there are none."""
    films = []
    for env in ENVS:
        gif = folder / f"{env}.gif"
        if gif.exists():
            still = io.BytesIO()
            with Image.open(gif) as moving:
                moving.convert("RGB").save(still, "PNG")
            films.append(Film(env, *(base64.b64encode(b).decode() for b in (still.getvalue(), gif.read_bytes()))))
    text = "One greedy episode of one client of a tuned FedQHD run in each environment."
    return Tab("policies", "Policies", [Section(text=text, films=films)]) if films else None


def settings_tab(records: Rows) -> Tab:
    """Return the commands that repeat each run, and the runs that failed."""
    folded = []
    for preset in PRESETS:
        lines = []
        for r in select(records, preset=preset):
            commits = ", ".join(sorted({x["commit"] for x in r["runs"]})) or "–"
            failed = f"; {len(r['failed'])} failed" if r["failed"] else ""
            lines.append(f"# {r['method']}, {len(r['runs'])} seeds at {commits}{failed}\n{r['command']}")
        if lines:
            folded.append((f"Preset {preset}: {len(lines)} cells", "\n".join(lines)))
    failures = [f"{r['env']}, {r['method']}, {r['setting']}, seed {f['seed']}: {f['error']}"
                for r in records for f in r["failed"]]  # fmt: skip
    how = Section(text="Each command below repeats one run; add `--seed` 0, 1, 2, … These repeat everything:",
                  commands="fedqhd reproduce tune\nfedqhd reproduce all\nfedqhd report", folded=folded)  # fmt: skip
    broken = Section("Runs that failed", points=failures, note="" if failures else "None.")
    return Tab("settings", "Settings, re-running", [how, broken])


def tabs_of(results: Path) -> list[Tab]:
    """Return the tabs for which there are result files."""
    records, curves = (read_rows(results, name) for name in ("main", "curves"))
    rows = measured(records)
    scalability, robustness = (read_rows(results, name) for name in ("scalability", "robustness"))
    ablated = ablations(results)
    found = [
        main_tab(rows, records),
        curves_tab(curves) if curves else None,
        cost_tab(rows, read_rows(results, "cost")),
        ablation_tab(ablated) if ablated else None,
        scalability_tab(scalability) if scalability else None,
        robustness_tab(robustness) if robustness else None,
        policies_tab(results / "policies"),
        settings_tab(records),
    ]
    return [t for t in found if t]
