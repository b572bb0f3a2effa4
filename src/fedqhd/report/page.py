"""One self-contained page of all results: no server, no network, one file."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from PIL import Image

from fedqhd.core.presets import PRESETS, SETTINGS
from fedqhd.report import charts
from fedqhd.report.collect import ablations, alterations, read_rows
from fedqhd.studies import paper
from fedqhd.studies.main_table import TITLES, best, measured, standing
from fedqhd.studies.markdown import Rows, of
from fedqhd.studies.presets import ENVS, METHODS

LEGEND = """<p>★ best non-oracle; † oracle, which pools the data of all clients; interquartile mean over seeds, in
brackets its 95 % bootstrap interval, below it the paper's mean of three seeds. Homog.: one encoder or network for all;
heterog.: each its own.</p>"""


class Tab(NamedTuple):
    name: str
    title: str
    body: str


def code(text: str) -> str:
    """Backquotes as <code>."""
    parts = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if k % 2 else p for k, p in enumerate(parts))


class Pictures(dict[str, str]):
    """Every chart of the page, by file name, as it is drawn."""

    def chart(self, figure: Figure, caption: str) -> str:
        text = charts.svg(figure)
        self[re.sub(r"[^a-z0-9]+", "-", caption.lower()).strip("-") + ".svg"] = text
        data = base64.b64encode(text.encode()).decode()
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(caption)}">'
        return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def gallery(figures: Iterable[str]) -> str:
    return f'<div class="charts">{"".join(figures)}</div>'


def table(head: Iterable[str], body: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Cells come as whole <td>s."""
    columns = "".join(f'<th scope="col">{h}</th>' for h in head)
    lines = "".join(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>' for name, cells in body)
    inside = f"<table><thead><tr>{columns}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="table">{inside}</div>'


def main_table(rows: Rows, measure: str) -> str:
    """Ours, its interval, the paper's; the best non-oracle of a cell is marked by colour, weight and a star."""
    columns = [(e, s) for e in ENVS for s in SETTINGS]
    heads = ["method", *(f"{e.partition('-')[0]}<br>{s.removesuffix('eneous')}." for e, s in columns)]

    def cell(method: str, env: str, setting: str) -> str:
        found = of(rows, method=method, env=env, setting=setting)
        if not found:
            return "<td>–</td>"
        v, first = found[0][measure], method in best(rows, env, setting, measure)
        beside = paper.final_return(method, env, setting) if measure == "final_return" else None
        theirs = f"<small>paper {beside['mean']:.1f}</small>" if beside else ""
        star = "★ " if first else ""
        inside = f"{star}{v['iqm']:.1f}<small>[{v['lo']:.1f}, {v['hi']:.1f}]</small>{theirs}"
        return f'<td class="best">{inside}</td>' if first else f"<td>{inside}</td>"

    mark = {m: m + ("†" if m in paper.ORACLES else "") for m in METHODS}
    have = [m for m in METHODS if of(rows, method=m)]
    return table(heads, ((mark[m], [cell(m, e, s) for e, s in columns]) for m in have))


def main_tab(draw: Pictures, rows: Rows, records: Rows) -> Tab:
    parts = []
    for preset in PRESETS:
        here = of(rows, preset=preset)
        if not here:
            continue
        parts.append(f"<h2>{code(TITLES[preset])}</h2><p>{escape(' '.join(standing(here, preset)))}</p>")
        parts += ["<h3>Final return (training, last 100 episodes)</h3>", main_table(here, "final_return")]
        parts += ["<h3>Greedy return</h3>", main_table(here, "greedy_return")]
        parts.append(gallery([draw.chart(charts.profiles(records, preset), f"Performance profiles, preset {preset}")]))
    parts.append(LEGEND)
    return Tab("main", "Main table", "".join(parts))


def curves_tab(draw: Pictures, curves: Rows) -> Tab:
    preset = next((p for p in PRESETS if of(curves, preset=p)), PRESETS[0])
    here = of(curves, preset=preset)
    drawn = [
        draw.chart(charts.learning_curves(here, e, s), f"Learning curves on {e}, {s}, with 95 % bands")
        for e in charts.environments(here, ENVS) for s in SETTINGS if of(here, env=e, setting=s)
    ]  # fmt: skip
    told = f"<p>Preset <code>{preset}</code>: interquartile mean over seeds of the clients' mean, over 20 episodes.</p>"
    return Tab("curves", "Learning curves", told + gallery(drawn))


def cost_tab(draw: Pictures, rows: Rows, costs: Rows) -> Tab:
    parts = []
    tuned = of(costs, preset="tuned")
    drawn = [
        draw.chart(charts.until_bars(tuned, e, s), f"CPU seconds until the paper's return on {e}, {s}")
        for e in charts.environments(tuned, ENVS) for s in SETTINGS if of(tuned, env=e, setting=s)
    ]  # fmt: skip
    if drawn:
        parts += ["<h2>Until the paper's return</h2>", "<p>CPU seconds until the mean of the last 100 training "
                  "episodes has come up to what the paper's FedQHD has after 600, each method as tuned, median of "
                  "seeds; a run that does not get there counts with all that it took.</p>", gallery(drawn)]  # fmt: skip
    for preset in PRESETS:
        here = of(rows, preset=preset)
        drawn = [
            draw.chart(charts.cost_bars(here, e, s), f"Minutes a run on {e}, {s}, preset {preset}")
            for e in charts.environments(here, ENVS) for s in SETTINGS if of(here, env=e, setting=s)
        ]  # fmt: skip
        if drawn:
            parts += [f"<h2>Whole runs. {code(TITLES[preset])}</h2>", gallery(drawn)]
    told = (
        "<p>Training and federation of one run on one core, evaluation apart. The paper's machine is not ours: compare "
    )
    return Tab("cost", "Cost", told + "methods, not columns.</p>" + "".join(parts))


def ablation_tab(draw: Pictures, found: Mapping[str, Mapping[str, Any]]) -> Tab:
    parts = []
    for key, one in found.items():
        over = one["over"]
        drawn = [draw.chart(charts.ablation(one["rows"], over, value, name), f"{name}: {key}")
                 for value, name in (("gap_rms", "Q-error"), ("greedy", "Policy value"))]  # fmt: skip
        parts += [f"<h2>{escape(key[0].upper() + key[1:])}</h2>", gallery(drawn)]
        parts.append(f"<p>Commit <code>{one['commit']}</code>: <code>{escape(one['command'])}</code></p>")
    told = "<p>CartPole. The paper: slope −0.525 over D with m = 4D; a transition at m = D.</p>"
    return Tab("ablations", "Ablations", told + "".join(parts))


def scalability_tab(draw: Pictures, rows: Rows) -> Tab:
    drawn = [draw.chart(charts.scalability(rows, e), f"Return over the number of clients on {e}")
             for e in charts.environments(rows, ENVS)]  # fmt: skip
    told = paper.figures()["scalability"]["gain_over_N1_percent"]
    gains = ", ".join(f"{e} +{v} %" for e, v in told.items())
    return Tab("scalability", "Scalability", f"<p>The paper's gain of N = 20 over N = 1: {gains}.</p>" + gallery(drawn))


def robustness_tab(draw: Pictures, rows: Rows) -> Tab:
    parts = ["<p>Greedy return as hypervector components or, for the network, its weights are damaged, and as weights "
             "are kept in fewer bits.</p>"]  # fmt: skip
    for damage, name in charts.AMOUNTS.items():
        here = of(rows, damage=damage)
        if here:
            drawn = [
                draw.chart(charts.robustness(here, e, damage), f"{name.capitalize()}, {e}")
                for e in charts.environments(here, ENVS)
            ]
            parts += [f"<h2>{escape(name.capitalize())}</h2>", gallery(drawn)]
    return Tab("robustness", "Robustness", "".join(parts))


def policies_tab(folder: Path) -> Tab | None:
    figures = []
    for env in ENVS:
        gif = folder / f"{env}.gif"
        if gif.exists():
            still = io.BytesIO()
            with Image.open(gif) as moving:
                moving.convert("RGB").save(still, "PNG")
            first, data = (base64.b64encode(b).decode() for b in (still.getvalue(), gif.read_bytes()))
            figures.append(
                f'<figure><img id="policy-{env}" src="data:image/png;base64,{first}" alt="A learned policy on {env}">'
                f'<figcaption>{env} <button aria-controls="policy-{env}" aria-pressed="false" '
                f'data-moving="data:image/gif;base64,{data}">Play</button></figcaption></figure>'
            )
    told = "<p>One greedy episode of one client of a tuned FedQHD run.</p>"
    return Tab("policies", "Policies", told + gallery(figures)) if figures else None


def settings_tab(records: Rows) -> Tab:
    parts = ["<p>Every run by itself, with <code>--seed</code> 0, 1, 2, …; all of it with:</p>",
             "<pre>fedqhd reproduce tune\nfedqhd reproduce all\nfedqhd report</pre>"]  # fmt: skip
    for preset in PRESETS:
        lines = []
        for r in of(records, preset=preset):
            commits = ", ".join(sorted({x["commit"] for x in r["runs"]})) or "–"
            failed = f"; {len(r['failed'])} failed" if r["failed"] else ""
            lines.append(f"# {r['method']}, {len(r['runs'])} seeds at {commits}{failed}\n{r['command']}")
        if lines:
            shown = escape("\n".join(lines))
            parts.append(f"<details><summary>Preset {preset}: {len(lines)} cells</summary><pre>{shown}</pre></details>")
    broken = [f"{r['env']}, {r['method']}, {r['setting']}, seed {f['seed']}: {f['error']}"
              for r in records for f in r["failed"]]  # fmt: skip
    told = "".join(f"<li>{escape(x)}</li>" for x in broken)
    parts.append(f"<h2>Runs that failed</h2>{f'<ul>{told}</ul>' if broken else '<p>None.</p>'}")
    return Tab("settings", "Settings, re-running", "".join(parts))


def tabs_of(results: Path, draw: Pictures) -> list[Tab]:
    records, curves = (read_rows(results, name) for name in ("main", "curves"))
    rows = measured(records)
    scalability, robustness = (read_rows(results, name) for name in ("scalability", "robustness"))
    ablated = ablations(results)
    found = [
        main_tab(draw, rows, records),
        curves_tab(draw, curves) if curves else None,
        cost_tab(draw, rows, read_rows(results, "cost")),
        ablation_tab(draw, ablated) if ablated else None,
        scalability_tab(draw, scalability) if scalability else None,
        robustness_tab(draw, robustness) if robustness else None,
        policies_tab(results / "policies"),
        settings_tab(records),
    ]
    return [t for t in found if t]


def page(results: Path) -> tuple[str, Pictures]:
    """The page, and its charts by themselves."""
    draw = Pictures()
    tabs = tabs_of(results, draw)
    rows = measured(read_rows(results, "main"))
    commits = ", ".join(sorted({c for r in rows for c in r["commit"].split(", ")}))
    intro = (f"<p>Federated Q-learning in function space, beside the paper's figures. {len(rows)} cells, measured at "
             f"{escape(commits)}. Made by <code>fedqhd report</code>.</p>")  # fmt: skip
    intro = "".join(f"<p><strong>{escape(text)}</strong></p>" for text in alterations(results)) + intro
    buttons = "\n".join(
        f'<button role="tab" id="{t.name}" aria-controls="panel-{t.name}" aria-selected="{str(k == 0).lower()}">'
        f"{escape(t.title)}</button>" for k, t in enumerate(tabs)
    )  # fmt: skip
    panels = "\n".join(
        f'<section role="tabpanel" id="panel-{t.name}" aria-labelledby="{t.name}" tabindex="0">{t.body}</section>'
        for t in tabs
    )
    template = (resources.files("fedqhd.report") / "page.html").read_text()
    for mark, text in (("INTRO", intro), ("TABS", buttons), ("PANELS", panels)):
        template = template.replace("{{" + mark + "}}", text)
    return template, draw
