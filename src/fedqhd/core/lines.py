"""Reading and writing JSON Lines: files that grow by a line at a time, each of which is a JSON object."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedqhd.core.files import write_bytes, write_failed

Line = Mapping[str, Any]


def encoded(lines: Iterable[Line], separators: tuple[str, str] | None = None) -> bytes:
    """Return the bytes of lines; `separators` are those of `json.dumps`."""
    return "".join(json.dumps(line, separators=separators) + "\n" for line in lines).encode()


def parsed(data: bytes) -> list[dict[str, Any]]:
    """Return the lines in some bytes. Raises ValueError if one of them is damaged."""
    return [json.loads(line) for line in data.splitlines()]


def complete(data: bytes) -> bytes:
    """Return the bytes of all lines that have ended; the last one may still be in the making."""
    return data[: data.rfind(b"\n") + 1]


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; none if there is no such file."""
    return parsed(file.read_bytes()) if file.exists() else []


def read_complete_lines(file: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file that may be growing; none if there is no such file."""
    return parsed(complete(file.read_bytes())) if file.exists() else []


def write_lines(file: Path, lines: Iterable[Line], separators: tuple[str, str] | None = None) -> None:
    """Write a file atomically, replacing what it contains."""
    write_bytes(file, encoded(lines, separators))


def append_lines(file: Path, lines: Iterable[Line], *, durable: bool = False) -> bytes:
    """Append lines to a file and return their bytes, which are on disk then if they must be `durable`.

    Raises:
        WriteFailed: If the file system refuses.
    """
    data = encoded(lines)
    try:
        with file.open("ab") as f:
            f.write(data)
            f.flush()
            if durable:
                os.fsync(f.fileno())
    except OSError as error:
        raise write_failed(file, error) from error
    return data
