"""Everything that the rest of a run depends on, after each round, in one file; the last few of them are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_checkpoint, write_checkpoint
from fedqhd.core.protocols import Engine, Payload, under
from fedqhd.federation import Server


class Checkpoint(NamedTuple):
    rounds_done: int
    teacher: Payload
    totals: dict[str, Any]


class Parties(NamedTuple):
    """All that has a state: the clients, wherever they live, and the server."""

    engine: Engine
    server: Server

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, note = self.server.state()
        return {**{f"server/{name}": v for name, v in arrays.items()}, **self.engine.state()}, note

    def restore(self, arrays: Payload, note: dict[str, Any]) -> None:
        self.server.restore(under(arrays, "server/"), note)
        self.engine.restore(arrays)


def nodes(folder: Path) -> Path:
    """Where the clients of a run keep themselves that live in Flower's simulation."""
    return folder / "nodes"


def save(
    folder: Path, rounds_done: int, teacher: Payload, parties: Parties, totals: dict[str, Any], run: str, keep: int
) -> None:
    """`run` says which run it is, so that no other goes on with it."""
    arrays, note = parties.state()
    arrays |= {f"teacher/{k}": v for k, v in teacher.items()}
    about = {"rounds_done": rounds_done, "totals": totals, "server": note, "run": run}
    write_checkpoint(folder, rounds_done, arrays, about, keep)


def load(folder: Path, parties: Parties, run: str) -> Checkpoint | None:
    """Restore everyone from the newest checkpoint that is whole; None where there is none, and the run begins."""
    found = read_checkpoint(folder)
    if found is None:
        return None
    about = found.about
    if about["run"] != run:
        raise FedQHDError(f"{found.path} belongs to a run with other settings: remove it, or give --overwrite")
    parties.restore(found.arrays, about["server"])
    return Checkpoint(about["rounds_done"], under(found.arrays, "teacher/"), about["totals"])
