"""The file metrics.jsonl, which is bit-identical whenever a run is repeated: one line per client and episode."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedqhd.core.files import damaged, write_bytes
from fedqhd.core.lines import append_lines
from fedqhd.core.protocols import Reply

NAME = "metrics.jsonl"


def rows(k: int, replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl for round k, one per client and episode."""
    return [
        {
            "round": k,
            "client": e.client,
            "episode": e.episode,
            "return": e.ret,
            "length": e.length,
            "epsilon": e.epsilon,
        }
        for r in replies
        for e in r.episodes
    ]


def append(folder: Path, new: list[dict[str, Any]], size: int, crc: int) -> tuple[int, int]:
    """Append lines to metrics.jsonl and return its new size in bytes and CRC-32, of which `size` and `crc` are the old.

    The lines are on disk when this returns, before a checkpoint that relies on them is written.
    """
    data = append_lines(folder / NAME, new, durable=True)
    return size + len(data), zlib.crc32(data, crc)


def cut_back(folder: Path, size: int, crc: int) -> None:
    """Cut metrics.jsonl back to `size` bytes with the CRC-32 `crc`, which drops lines of rounds to be played again.

    Raises:
        FedQHDError: If lines of finished rounds are missing or damaged.
    """
    metrics = folder / NAME
    data = metrics.read_bytes()[:size] if metrics.exists() else b""
    if len(data) != size or zlib.crc32(data) != crc:
        raise damaged(metrics, "it lacks lines of finished rounds")
    write_bytes(metrics, data)
