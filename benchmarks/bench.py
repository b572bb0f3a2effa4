"""Measure all speed ratios and write results/bench.json and its table. This needs an otherwise idle machine.

`--only PART ...` measures some parts and keeps the stored results of the others. `--check` compares with the stored
results instead of writing them.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import demo
import micro
import peers
import whole
from common import ROOT, head
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

FILE = ROOT / "results" / "bench.json"
PARTS: dict[str, Callable[[], Iterator[micro.Row]]] = {
    "operations": micro.rows,
    "steps": whole.steps,
    "engines": whole.engines,
    "fleet": whole.fleet,
    "starting": whole.starting,
    "peers": peers.rows,
    "demo": demo.rows,
    "until": whole.until,
}
CHECKED = ("operations", "steps", "engines", "starting")
"""The parts that depend on this working tree alone. They take about ten minutes."""
LOSS = 1.25
"""`--check` fails if a ratio is worse than before by more than this factor."""
LIMIT = ", ours over the limit"


def show(rows: Sequence[micro.Row]) -> None:
    """Print the rows as a table."""
    table = Table(title="times as fast as the other; a limit: times as slow as it")
    for column in ("what", "against", "ratio", "goal", ""):
        table.add_column(column, justify="right" if column in ("ratio", "goal") else "left")
    for r in rows:
        goal, short = "", ""
        if r["goal"] is not None:
            goal = f"{'at most' if r['at_most'] else 'at least'} {r['goal']:g}"
            short = "" if reached(r) else "short of it"
        table.add_row(r["name"].removesuffix(LIMIT), r["against"], f"{r['ratio']:.2f}", goal, short)
    Console().print(table)


def machine() -> str:
    """Return the name of the processor, since ratios differ between processors."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    wide = " with AVX-512" if any("avx512f" in line for line in lines) else ""
    return (names[0] if names else platform.machine()) + wide


def table(rows: Sequence[micro.Row]) -> str:
    """Return the content of results/bench.md."""
    lines = [
        "# How fast",
        "",
        "Made by `make bench` on idle machines with two cores, named beside each row. Ratios of medians, taken in turn "
        "in",
        "one run: how many times as fast as the other or, where the goal is *at most*, how many times as slow as the",
        "limit. Rows about the paper's return beside our own DQNs are of the main table's runs, two of which ran at a",
        "time (results/cost.json).",
        "",
        "| what | against | ratio | goal | | repeats | commit | processor |",
        "|---|---|---:|---:|---|---:|---|---|",
    ]
    for r in rows:
        goal = "" if r["goal"] is None else f"{'at most' if r['at_most'] else 'at least'} {r['goal']:g}"
        mark = "" if r["goal"] is None else "reached" if reached(r) else "short"
        name = r["name"].removesuffix(LIMIT)
        lines.append(
            f"| {name} | {r['against']} | {r['ratio']:.2f} | {goal} | {mark} | {r['repeats']} | `{r['commit']}` "
            f"| {r['machine']} |"
        )
    return "\n".join([*lines, ""])


def ordered(rows: Iterable[micro.Row]) -> list[micro.Row]:
    """Sort the rows by their part."""
    return sorted(rows, key=lambda r: list(PARTS).index(r["part"]))


def write(rows: Sequence[micro.Row]) -> None:
    """Write all rows. This is called after every row, since all of them take hours; the others stay as they were."""
    about = {"command": "make bench", "rows": rows}
    FILE.write_text(json.dumps(about, indent=1) + "\n")
    FILE.with_suffix(".md").write_text(table(rows))


def reached(r: micro.Row) -> bool:
    """Return whether a row reaches its goal."""
    return r["ratio"] <= r["goal"] if r["at_most"] else r["ratio"] >= r["goal"]


def key(r: micro.Row) -> tuple[str, str]:
    """Return what identifies a row."""
    return r["name"], r["against"]


def lost(now: micro.Row, before: micro.Row) -> bool:
    """Return whether the ratio is worse than before by more than a factor of LOSS."""
    worse = now["ratio"] / before["ratio"] if now["at_most"] else before["ratio"] / now["ratio"]
    return worse > LOSS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=None, metavar="PART")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stored = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    before = {key(r): r for r in stored}
    wanted = args.only or (CHECKED if args.check else tuple(PARTS))
    rows = {} if args.check else dict(before)
    for part in wanted:
        new = {}
        with threadpool_limits(1):
            for r in PARTS[part]():
                new[key(r)] = {"part": part, **r, "commit": head(), "machine": machine()}
                print(f"{r['name']}, against {r['against']}: {r['ratio']:.2f}", flush=True)
                rows |= new
                if not args.check:
                    write(ordered(rows.values()))
        rows = {k: r for k, r in rows.items() if r["part"] != part} | new
    if not args.check:
        write(ordered(rows.values()))
    show(ordered(rows.values()))
    if not args.check:
        return 0
    bad = [r for k, r in rows.items() if k in before and lost(r, before[k])]
    for r in bad:
        was = before[key(r)]["ratio"]
        print(f"lost more than a quarter: {r['name']} against {r['against']}: {r['ratio']} was {was}")
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
