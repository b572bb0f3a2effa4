"""A line for each round in rounds.jsonl: how long it took, what became of replies, how far clients were apart.

Apart from metrics.jsonl, which is the same to the bit whenever and wherever a run is repeated: clocks are not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedqhd.core.protocols import Array, Payload, Reply
from fedqhd.federation import Server

NAME = "rounds.jsonl"


def cut_back(folder: Path, rounds_done: int) -> None:
    """Drop the lines of rounds that are to be run again, and half a line."""
    file = folder / NAME
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    file.write_text("".join(line for line in lines[:rounds_done] if line.endswith("\n")))


def note(
    folder: Path, k: int, took: tuple[float, float], server: Server, replies: Sequence[Reply], teacher: Payload
) -> None:
    """`took` is (seconds on the clock, CPU seconds). Counts are those since the run began."""
    counts = dict.fromkeys(("refused", "left out", "late", "repeated"), 0)
    for key, count in server.counts.items():
        kind = key.partition("/")[0]
        counts[kind] = counts.get(kind, 0) + count
    apart = {str(r.client): distance(r.payload, teacher) for r in replies}
    row = {
        "round": k,
        "seconds": round(took[0], 3),
        "cpu_seconds": round(took[1], 3),
        **counts,
        "apart": {i: d for i, d in apart.items() if d is not None},
    }
    with (folder / NAME).open("a") as f:
        f.write(json.dumps(row) + "\n")


def cpu_seconds_until(folder: Path, episode: int) -> float:
    """What all rounds up to the one that ends with or after so many episodes of a client took."""
    metrics = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    last = min(row["round"] for row in metrics if row["episode"] == episode - 1)
    lines = (folder / NAME).read_text().splitlines()
    return sum(float(json.loads(line)["cpu_seconds"]) for line in lines[: last + 1])


def distance(payload: Payload, teacher: Payload) -> float | None:
    """Root mean square of what a client sent less what was made of it, relative to the spread of that; None where they
    cannot be compared."""
    for name in ("Q", "W"):
        sent, made = payload.get(name) if isinstance(payload, Mapping) else None, teacher.get(name)
        if isinstance(sent, np.ndarray) and made is not None and sent.shape == made.shape and sent.dtype.kind in "fc":
            spread = rms(made - made.mean(axis=0))
            d = rms(sent - made)
            return d / spread if spread > 0 and np.isfinite(d) else None
    return None


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.abs(x) ** 2)))
