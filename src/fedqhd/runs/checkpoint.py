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
    state: Payload
    """The federation's, as the server keeps it."""
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


def save(folder: Path, done: Checkpoint, parties: Parties, run: str, keep: int) -> None:
    """`run` says which run it is, so that no other goes on with it."""
    arrays, note = parties.state()
    arrays |= {f"teacher/{k}": v for k, v in done.teacher.items()}
    arrays |= {f"federation/{k}": v for k, v in done.state.items()}
    about = {"rounds_done": done.rounds_done, "totals": done.totals, "server": note, "run": run}
    write_checkpoint(folder, done.rounds_done, arrays, about, keep)


def load(folder: Path, parties: Parties, run: str) -> Checkpoint | None:
    """Restore everyone from the newest checkpoint that is whole; None where there is none, and the run begins."""
    found = read_checkpoint(folder)
    if found is None:
        return None
    about = found.about
    if about["run"] != run:
        raise FedQHDError(f"{found.path} belongs to a run with other settings: remove it, or give --overwrite")
    parties.restore(found.arrays, about["server"])
    teacher, state = (under(found.arrays, prefix) for prefix in ("teacher/", "federation/"))
    return Checkpoint(about["rounds_done"], teacher, state, about["totals"])
