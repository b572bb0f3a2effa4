"""The file rounds.jsonl with one line per round: its duration, its replies, and how far the clients were apart.

It is separate from metrics.jsonl, which is bit-identical whenever a run is repeated, because durations are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedqhd.core.lines import append_lines, parsed, read_complete_lines, write_lines
from fedqhd.core.protocols import Array, Payload, Reply
from fedqhd.federation import Server
from fedqhd.federation.wrappers.server_step import USED
from fedqhd.runs.metrics import NAME as METRICS

NAME = "rounds.jsonl"


def cut_back(folder: Path, rounds_done: int) -> None:
    """Keep the lines of the first `rounds_done` rounds and drop incomplete lines, before a run resumes."""
    write_lines(folder / NAME, read_complete_lines(folder / NAME)[:rounds_done])


def append_round(
    folder: Path,
    k: int,
    seconds: tuple[float, float],
    server: Server,
    replies: Sequence[Reply],
    teacher: Payload,
    state: Payload,
) -> None:
    """Append the line of round k.

    Args:
        folder: The folder of the run.
        k: The round.
        seconds: The wall-clock seconds and the CPU seconds of the round.
        server: Its counts are written as they stand, since the start of the run.
        replies: All replies of the round.
        teacher: The teacher of the round.
        state: The federation's state after the round.
    """
    counts = dict.fromkeys(("refused", "left out", "late", "repeated"), 0)
    for key, count in server.counts.items():
        kind = key.partition("/")[0]
        counts[kind] = counts.get(kind, 0) + count
    apart = {str(r.client): distance(r.payload, teacher) for r in replies}
    row = {
        "round": k,
        "seconds": round(seconds[0], 3),
        "cpu_seconds": round(seconds[1], 3),
        **counts,
        "apart": {i: d for i, d in apart.items() if d is not None},
    }
    if USED in state:
        row["server_step"] = round(float(state[USED]), 4)
    append_lines(folder / NAME, [row])


def cpu_seconds_until(folder: Path, episode: int) -> float:
    """Return the CPU seconds of all rounds up to and including the one in which clients played this many episodes."""
    last = min(row["round"] for row in parsed((folder / METRICS).read_bytes()) if row["episode"] == episode - 1)
    return sum(float(line["cpu_seconds"]) for line in parsed((folder / NAME).read_bytes())[: last + 1])


def distance(payload: Payload, teacher: Payload) -> float | None:
    """Return the root-mean-square difference between a reply and the teacher, relative to the teacher's spread.

    None means that the two cannot be compared.
    """
    for name in ("Q", "W"):
        sent, mean = payload.get(name) if isinstance(payload, Mapping) else None, teacher.get(name)
        if isinstance(sent, np.ndarray) and mean is not None and sent.shape == mean.shape and sent.dtype.kind in "fc":
            spread = rms(mean - mean.mean(axis=0))
            with np.errstate(all="ignore"):  # a refused reply may hold any numbers
                d = rms(sent - mean)
            return d / spread if spread > 0 and np.isfinite(d) else None
    return None


def rms(x: Array) -> float:
    """Return the root mean square of all entries."""
    return float(np.sqrt(np.mean(np.abs(x) ** 2)))
