"""All ratios side by side: results/bench.json and a table. Wants an idle machine; absolute times are noise."""

from __future__ import annotations

import json
import platform

import micro
from cells import ROOT, head
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits


def main() -> None:
    with threadpool_limits(1):
        rows = list(micro.rows())
    table = Table(title="times as fast as the other; a limit: times as slow as it")
    for column in ("what", "against", "ratio", "goal"):
        table.add_column(column, justify="right" if column in ("ratio", "goal") else "left")
    for r in rows:
        goal = "" if r["goal"] is None else f"{'at most' if r['at_most'] else 'at least'} {r['goal']:g}"
        table.add_row(r["name"], r["against"], f"{r['ratio']:.2f}", goal)
    Console().print(table)
    about = {"command": "make bench", "commit": head(), "machine": platform.machine(), "rows": rows}
    (ROOT / "results" / "bench.json").write_text(json.dumps(about, indent=1) + "\n")
    print("written to results/bench.json")


if __name__ == "__main__":
    main()
