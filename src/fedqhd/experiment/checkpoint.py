"""Everything that the rest of a run depends on, after each round, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedqhd.client import LocalClient
from fedqhd.files import read_arrays, write_arrays
from fedqhd.interfaces import Payload, under


class Checkpoint(NamedTuple):
    rounds_done: int
    teacher: Payload
    totals: dict[str, Any]


def path_of(folder: Path) -> Path:
    return folder / "checkpoint.npz"


def save(
    folder: Path, rounds_done: int, teacher: Payload, clients: Sequence[LocalClient], totals: dict[str, Any]
) -> None:
    arrays = {f"teacher/{k}": v for k, v in teacher.items()}
    for client in clients:
        arrays |= {f"{client.index}/{k}": v for k, v in client.state().items()}
    write_arrays(path_of(folder), arrays, {"rounds_done": rounds_done, "totals": totals})


def load(folder: Path, clients: Sequence[LocalClient]) -> Checkpoint | None:
    """Restore the clients; None where no round was finished before the run was cut off."""
    if not path_of(folder).exists():
        return None
    arrays, about = read_arrays(path_of(folder))
    for client in clients:
        client.restore(under(arrays, f"{client.index}/"))
    return Checkpoint(about["rounds_done"], under(arrays, "teacher/"), about["totals"])
