"""The returns this version promises: every environment on three seeds, and different encoders on CartPole.

Resumable to the single run: what runs/core/ holds already is not run again. Two runs at a time.
The seeds reported here (0, 1, 2) took no part in choosing settings, which was done on 100 and above.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
SEEDS = (0, 1, 2)
DIFFERENT = [
    "--setting",
    "heterogeneous",
    "--dims",
    "500",
    "1000",
    "2000",
    "5000",
    "10000",
    "--sigma-spread",
    "0.5",
    "--anchors",
    "200",
]
CELLS = {
    "CartPole-v1, one encoder": (466, ["--env", "CartPole-v1"]),
    "MountainCar-v0, one encoder": (-120, ["--env", "MountainCar-v0"]),
    "Acrobot-v1, one encoder": (-100, ["--env", "Acrobot-v1"]),
    "LunarLander-v3, one encoder": (190, ["--env", "LunarLander-v3"]),
    "CartPole-v1, different encoders, warm-start": (450, ["--env", "CartPole-v1", *DIFFERENT]),
    "CartPole-v1, different encoders, overwrite": (
        None,
        ["--env", "CartPole-v1", *DIFFERENT, "--compile", "overwrite"],
    ),
}


def folder(cell: str, seed: int) -> Path:
    return ROOT / "runs" / "core" / f"{cell.replace(', ', '-').replace(' ', '-')}-{seed}"


def run(job: tuple[str, int]) -> None:
    cell, seed = job
    out = folder(cell, seed)
    command = [
        str(Path(sys.executable).parent / "fedqhd"),
        "train",
        *CELLS[cell][1],
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((out / "summary.json").read_text())
    print(
        f"{cell}, seed {seed}: final {summary['final_return']:.1f}, greedy {summary['greedy_return']:.1f}", flush=True
    )


def main() -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, [(cell, seed) for cell in CELLS for seed in SEEDS]))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    rows = []
    for cell, (promised, arguments) in CELLS.items():
        summaries = [json.loads((folder(cell, seed) / "summary.json").read_text()) for seed in SEEDS]
        row = {
            "cell": cell,
            "command": " ".join(["fedqhd", "train", *arguments]),
            "promised": promised,
            "commit": commit,
        }
        for key in ("final_return", "greedy_return", "env_steps", "cpu_seconds"):
            row[key] = [round(s[key], 2) for s in summaries]
        rows.append(row)
    (ROOT / "results" / "core.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "# Returns of the core",
        "",
        "Made by `make returns`: five clients, 600 episodes, settings from `configs/`, seeds 0, 1, 2 (settings were",
        f"chosen on seeds from 100 on), commit `{commit}`. *Final*: mean training return of all clients over the last",
        "100 episodes. *Greedy*: 20 fresh episodes a client after training. CPU seconds are of one run.",
        "",
        "| | promised | final, mean of seeds | each seed | greedy | CPU seconds |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for row in rows:
        final = np.array(row["final_return"])
        lines.append(
            f"| {row['cell']} | {row['promised'] or '–'} | {final.mean():.1f} | {', '.join(f'{x:.1f}' for x in final)} "
            f"| {np.mean(row['greedy_return']):.1f} | {np.mean(row['cpu_seconds']):.0f} |"
        )
    lines += [
        "",
        "Each run by itself, with `--seed 0`, `1` or `2` added:",
        "",
        "```",
        *(str(r["command"]) for r in rows),
        "```",
        "",
    ]
    (ROOT / "results" / "core.md").write_text("\n".join(lines))
    print("written to results/core.md and results/core.json")


if __name__ == "__main__":
    main()
