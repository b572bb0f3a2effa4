"""The part of RESULTS.md that is not the main table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedqhd.report import paper
from fedqhd.report.collect import read_json
from fedqhd.report.tables import Rows, markdown, name, of
from fedqhd.studies.presets import ENVS, Cell, cells
from fedqhd.studies.suite import DAMAGED

SHOWN = [("zeroed", 0.1), ("zeroed", 0.3), ("zeroed", 0.6), ("zeroed", 0.9), ("flipped", 0.1), ("flipped", 0.4),
         ("noised", 0.1), ("noised", 0.5), ("noised", 0.9), *(("bits", k) for k in (8, 4, 2, 1))]  # fmt: skip

CELLS = cells()


def interval_of(v: Mapping[str, float]) -> str:
    return f"{v['iqm']:.1f} [{v['lo']:.1f}, {v['hi']:.1f}]"


def scalability(rows: Rows) -> list[str]:
    counts = sorted({r["clients"] for r in rows})
    body = []
    for env in [e for e in ENVS if of(rows, env=e)]:
        for setting in ("homogeneous", "heterogeneous"):
            here = {r["clients"]: r for r in of(rows, env=env, setting=setting)}
            if not here:
                continue
            values = [interval_of(here[n]["final_return"]) if n in here else "–" for n in counts]
            gain = "–"
            if {counts[0], counts[-1]} <= here.keys():
                first, last = (here[n]["final_return"]["iqm"] for n in (counts[0], counts[-1]))
                gain = f"{100 * (last - first) / abs(first):+.1f} %"
            theirs = paper.figures()["scalability"]["gain_over_N1_percent"][env]
            body.append([f"{env}, {setting}", *values, gain, f"+{theirs} %"])
    seeds = sorted({r["seeds"] for r in rows})
    return ["## Scalability", "",
            f"FedQHD as tuned for five clients, by their number: return over the last 30 episodes, {seeds[0]} seeds or "
            "more.", "",
            *markdown(["", *(f"N={n}" for n in counts), "gain", "the paper's gain"], body)]  # fmt: skip


def robustness(rows: Rows) -> list[str]:
    body = []
    for env in [e for e in ENVS if of(rows, env=e)]:
        for model in DAMAGED:
            here = {(r["damage"], r["amount"]): r["greedy_return"]["iqm"] for r in of(rows, env=env, model=model)}
            if here:
                values = [f"{here[key]:.1f}" if key in here else "–" for key in (("zeroed", 0.0), *SHOWN)]
                body.append([f"{env}, {model}", *values])
    heads = [f"{d} {a:.0%}" if d != "bits" else f"{a} bit{'s' * (a > 1)}" for d, a in SHOWN]
    return ["## Robustness of the representation", "",
            "Greedy return (interquartile mean over seeds) of a client of FedQHD when a share of its hypervector's",
            "components is multiplied by 0, by −1, or by 1 + N(0, 1), and when W is kept in few bits; as tuned and,",
            "where that was run, in the paper's settings; beside a FedAvg-DQN's whose weights are treated alike. One",
            "encoder or network for all.", "",
            *markdown(["", "intact", *heads], body)]  # fmt: skip


def ablations(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    body = []
    for key, one in found.items():
        for label, (b, low, high) in one["slopes"].items():
            if "gap_rms" in label:
                body.append([key, label.replace("gap_rms, ", ""), f"{b:.2f} [{low:.2f}, {high:.2f}]", one["commit"]])
    return ["## Ablations over D and m", "",
            "Slope of the federation gap (root mean square, held-out anchors) over D in double logarithms; the paper",
            "has −0.525. The whole of it is in [docs/theory.md](docs/theory.md).", "",
            *markdown(["", "compilation", "slope", "commit"], body)]  # fmt: skip


def cost(rows: Rows) -> list[str]:
    rows = sorted(of(rows, preset="tuned"), key=lambda r: CELLS.index(Cell(r["method"], r["env"], r["setting"])))
    body = []
    for r in rows:
        split = r["split_seconds"]
        total = sum(split.values()) or 1.0
        shares = [f"{split[k] / total:.0%}" for k in ("environment", "acting", "learning", "federation")]
        sizes = [f"{r[k] / 1024:,.1f}" for k in ("bytes_up_per_round", "bytes_down_per_round")]
        body.append([f"{r['env']}, {r['setting']}, {name(r['method'])}", f"{r['cpu_seconds']:.0f}", *shares, *sizes])
    heads = ["", "CPU s", "environment", "acting", "learning", "federation", "KiB up a round", "KiB down"]
    return [
        "## Where the time goes",
        "",
        "Preset `tuned`, mean of seeds; all clients together.",
        "",
        *markdown(heads, body),
        "",
        *until(rows),
    ]


def until(rows: Rows) -> list[str]:
    """Each method's CPU seconds to the paper's return, in a line for each cell."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    body = []
    for env, setting in dict.fromkeys((r["env"], r["setting"]) for r in rows):
        here = {r["method"]: r["until"] for r in of(rows, env=env, setting=setting)}
        told = []
        for u in map(here.get, methods):
            missed = f" ({u['runs'] - u['reached']} of {u['runs']} not)" if u and u["reached"] < u["runs"] else ""
            told.append(f"{u['cpu_seconds']:.0f}{missed}" if u else "–")
        body.append([f"{env}, {setting}", f"{next(iter(here.values()))['return']:.1f}", *told])
    return ["### CPU seconds until the paper's return", "",
            "Until the mean of the last 100 training episodes has come up to what the paper's FedQHD has after 600,",
            "median of seeds; a run that does not get there counts with all that it took.", "",
            *markdown(["", "the paper", *map(name, methods)], body)]  # fmt: skip


def studies(results: Path) -> list[str]:
    made: dict[str, Callable[[Any], list[str]]] = {
        "cost": cost,
        "ablation": ablations,
        "scalability": scalability,
        "robustness": robustness,
    }
    lines: list[str] = []
    for file, table in made.items():
        rows = read_json(results / f"{file}.json")
        lines += table(rows) if rows else []
    return lines
