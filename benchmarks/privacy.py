"""What hiding clients from the server costs in return: rounded replies, differential privacy, secure aggregation.

CartPole with different encoders, five clients, 200 episodes in ten rounds. What it costs in time on machines of their
own is for federation.py to say.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from cells import ROOT, head, run_all

BASE = (
    "--env CartPole-v1 --setting heterogeneous --clients 5 --dims 300 500 --episodes 200 --round-episodes 20 "
    "--anchors 200 --anchor-source rollout --aggregate mean"
)
CELLS = {
    "nothing hidden": "",
    "no federation": "--method independent-qhd",
    "float16": "--uplink float16",
    "int8": "--uplink int8",
    "clipped at 200": "--dp-clip 200 --dp-noise 0",
    "clipped, noise 0.01": "--dp-clip 200 --dp-noise 0.01",
    "clipped, noise 0.1": "--dp-clip 200 --dp-noise 0.1",
    "clipped, noise 1": "--dp-clip 200 --dp-noise 1",
    "SecAgg+": "--secure secagg+ --engine flower",
}
SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    seeds = parser.parse_args().seeds
    rows = []
    cells = {cell: [*BASE.split(), *more.split()] for cell, more in CELLS.items()}
    for cell, summaries in run_all("privacy", cells, seeds, jobs=1).items():
        privacy = summaries[0].get("privacy", {})
        rows.append({
            "cell": cell, "command": f"fedqhd train {BASE} {CELLS[cell]}".strip(), "seeds": list(seeds),
            "final_return": [round(s["final_return"], 1) for s in summaries],
            "greedy_return": [round(s["greedy_return"], 1) for s in summaries],
            "epsilon": privacy.get("epsilon") and round(privacy["epsilon"], 1), "delta": privacy.get("delta"),
            "cpu_seconds": [round(s["cpu_seconds"], 1) for s in summaries],
            "bytes_up_per_round": summaries[0]["bytes_up_per_round"], "commit": head(),
        })  # fmt: skip
    file = ROOT / "results" / "privacy.json"
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    lines = [
        "# What hiding clients from the server costs", "",
        f"Seeds: {', '.join(map(str, seeds))}. Noise is in units of 2 x 200. `python benchmarks/privacy.py --seeds "
        f"{' '.join(map(str, seeds))}` repeats it; commit `{head()}`.", "",
        "| | final return | each seed | greedy return | epsilon at delta 1e-5 | CPU seconds |",
        "|---|---:|---|---:|---:|---:|",
    ]  # fmt: skip
    for row in rows:
        each = " ".join(map(str, row["final_return"]))
        epsilon = f"{row['epsilon']:,}" if row["epsilon"] else "infinite" if row["delta"] else "–"
        lines.append(
            f"| {row['cell']} | {np.mean(row['final_return']):.1f} | {each} | {np.mean(row['greedy_return']):.1f} | "
            f"{epsilon} | {np.mean(row['cpu_seconds']):.0f} |"
        )
    lines += ["", "Each row is a run of", "", "```", f"fedqhd train {BASE}", "```", "", "and", ""]
    lines += [f"- {cell}: `{more or 'no more'}`" for cell, more in CELLS.items()]
    file.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
