"""The effect of privacy on returns: rounded replies, differential privacy and secure aggregation.

Five clients with different encoders train on CartPole for 200 episodes in ten rounds. benchmarks/federation.py measures
the cost in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.markdown import commits_of
from fedqhd.studies.study import Row, Rows, Run, column, command, commits, flags

BASE = {
    "env": "CartPole-v1", "setting": "heterogeneous", "clients": 5, "dims": [300, 500], "episodes": 200,
    "round_episodes": 20, "anchors": 200, "anchor_source": "rollout", "aggregate": "mean",
}  # fmt: skip
MORE: dict[str, dict[str, Any]] = {
    "nothing hidden": {},
    "no federation": {"method": "independent-qhd"},
    "float16": {"uplink": "float16"},
    "int8": {"uplink": "int8"},
    "clipped at 200": {"dp_clip": 200, "dp_noise": 0},
    "clipped, noise 0.01": {"dp_clip": 200, "dp_noise": 0.01},
    "clipped, noise 0.1": {"dp_clip": 200, "dp_noise": 0.1},
    "clipped, noise 1": {"dp_clip": 200, "dp_noise": 1},
    "SecAgg+": {"secure": "secagg+", "engine": "flower"},
}


class Privacy(CellStudy):
    """A row for each privacy mechanism, for federation without privacy, and for no federation."""

    name = "privacy"
    rank = 17
    about = "what hiding clients from the server costs in return"
    hours = 0.1
    cells = {cell: {**BASE, **more} for cell, more in MORE.items()}  # noqa: RUF012

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        privacy = runs[0].summary.get("privacy", {})
        return {
            "cell": cell, "command": command(settings), "seeds": [run.seed for run in runs],
            "final_return": column(runs, "final_return", 1), "greedy_return": column(runs, "greedy_return", 1),
            "epsilon": privacy.get("epsilon") and round(privacy["epsilon"], 1), "delta": privacy.get("delta"),
            "cpu_seconds": column(runs, "cpu_seconds", 1),
            "bytes_up_per_round": runs[0].summary["bytes_up_per_round"], "commit": commits(runs),
        }  # fmt: skip

    def table(self, rows: Rows) -> list[str]:
        lines = [
            "# What hiding clients from the server costs", "",
            f"Seeds: {', '.join(map(str, self.seeds))}. Noise is in units of 2 x 200. `fedqhd reproduce privacy` "
            f"repeats it; commit `{commits_of(rows)}`.", "",
            "| | final return | each seed | greedy return | epsilon at delta 1e-5 | CPU seconds |",
            "|---|---:|---|---:|---:|---:|",
        ]  # fmt: skip
        for row in rows:
            each = " ".join(map(str, row["final_return"]))
            epsilon = f"{row['epsilon']:,}" if row["epsilon"] else "infinite" if row["delta"] else "–"
            lines.append(
                f"| {self.marked(row['cell'], row)} | {np.mean(row['final_return']):.1f} | {each} "
                f"| {np.mean(row['greedy_return']):.1f} | {epsilon} | {np.mean(row['cpu_seconds']):.0f} |"
            )
        lines += ["", "Each row is a run of", "", "```", command(BASE), "```", "", "and", ""]
        shown = {cell: flags(more) for cell, more in MORE.items()}
        return [*lines, *(f"- {cell}: `{more or 'no more'}`" for cell, more in shown.items())]
