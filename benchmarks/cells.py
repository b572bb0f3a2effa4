"""Runs a list of `fedqhd train` commands over seeds and writes what came out: results/NAME.json and results/NAME.md.

Resumable to the single run: what runs/NAME/ holds already is not run again. Two runs at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedqhd.runs.outcome import training_returns

ROOT = Path(__file__).parent.parent
COMMAND = str(Path(sys.executable).parent / "fedqhd")


def folder(name: str, cell: str, seed: int) -> Path:
    return ROOT / "runs" / name / f"{cell.replace(', ', '-').replace(' ', '-')}-{seed}"


def run(name: str, cell: str, arguments: Sequence[str], seed: int) -> dict[str, Any]:
    out = folder(name, cell, seed)
    own = ["--seed", str(seed), "--out", str(out), "--resume"]
    own += [] if "--engine" in arguments else ["--engine", "local"]
    command = [COMMAND, "train", *arguments, *own]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((out / "summary.json").read_text())
    print(
        f"{cell}, seed {seed}: final {summary['final_return']:.1f}, greedy {summary['greedy_return']:.1f}", flush=True
    )
    return summary


def run_all(
    name: str, cells: Mapping[str, Sequence[str]], seeds: Sequence[int], jobs: int = 2
) -> dict[str, list[dict[str, Any]]]:
    """The summaries of each cell, seed by seed."""
    runs = [(name, cell, cells[cell], seed) for seed in seeds for cell in cells]
    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(lambda job: run(*job), runs))
    return {cell: done[k :: len(cells)] for k, cell in enumerate(cells)}


def curve(name: str, cell: str, seed: int, summary: Mapping[str, Any]) -> NDArray[Any]:
    """The training return of every episode, mean of the clients."""
    return training_returns(folder(name, cell, seed), summary["clients"], summary["episodes"]).mean(axis=0)


def head() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def run_cells(
    name: str,
    title: str,
    about: str,
    cells: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    promised: Mapping[str, float],
) -> None:
    rows = []
    for cell, summaries in run_all(name, cells, seeds).items():
        row = {
            "cell": cell,
            "command": f"fedqhd train {' '.join(cells[cell])}",
            "seeds": list(seeds),
            "commit": head(),
        }
        for key in ("final_return", "greedy_return", "env_steps", "cpu_seconds"):
            row[key] = [round(s[key], 2) for s in summaries]
        rows.append(row)
    (ROOT / "results" / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [f"# {title}", "", f"{about} Commit `{head()}`.", ""]
    lines += [
        "*Final*: mean training return of all clients over the last 100 episodes, mean of the seeds. *Greedy*: 20",
        "fresh episodes a client after training. CPU seconds are of one run.",
        "",
    ]
    wanted = " promised |" if promised else ""
    lines.append(f"| |{wanted} final | each seed | greedy | CPU seconds |")
    lines.append(f"|---|{'---:|' if promised else ''}---:|---|---:|---:|")
    for row in rows:
        final = np.array(row["final_return"])
        goal = f" {promised.get(row['cell'], '–')} |" if promised else ""
        lines.append(
            f"| {row['cell']} |{goal} {final.mean():.1f} | {', '.join(f'{x:.1f}' for x in final)} "
            f"| {np.mean(row['greedy_return']):.1f} | {np.mean(row['cpu_seconds']):.0f} |"
        )
    commands = [f"{row['command']}   # {row['cell']}" for row in rows]
    lines += ["", f"Each run by itself, with `--seed` {', '.join(map(str, seeds))}:", "", "```", *commands, "```", ""]
    (ROOT / "results" / f"{name}.md").write_text("\n".join(lines))
    print(f"written to results/{name}.md and results/{name}.json")
