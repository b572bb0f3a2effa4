"""Checkpoints: after each round, one file with all that the rest of the run depends on. The last few are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedqhd.core.engine import Engine
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_checkpoint, write_checkpoint
from fedqhd.core.protocols import Payload, under
from fedqhd.federation import Server


class Checkpoint(NamedTuple):
    """What a checkpoint holds besides the states of the clients and the server."""

    rounds_done: int
    teacher: Payload
    state: Payload
    """The federation's state on the server."""
    totals: dict[str, Any]
    """Steps, bytes and seconds so far."""


class Parties(NamedTuple):
    """The parts of a run that have a state: the clients, behind their engine, and the server."""

    engine: Engine
    server: Server

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays of all, and the server's note."""
        arrays, note = self.server.state()
        return {**{f"server/{name}": v for name, v in arrays.items()}, **self.engine.state()}, note

    def restore(self, arrays: Payload, note: dict[str, Any]) -> None:
        """Restore all from what `state` returned."""
        self.server.restore(under(arrays, "server/"), note)
        self.engine.restore(arrays)


def nodes_folder(folder: Path) -> Path:
    """Return the folder in which clients in Flower's simulation keep their states."""
    return folder / "nodes"


def save(folder: Path, done: Checkpoint, parties: Parties, run: str, keep: int) -> None:
    """Write a checkpoint.

    Args:
        folder: The folder of the run.
        done: The state of the run.
        parties: The clients and the server.
        run: The identity of the run, so that no other run resumes from it.
        keep: The number of checkpoints to keep.
    """
    arrays, note = parties.state()
    arrays |= {f"teacher/{k}": v for k, v in done.teacher.items()}
    arrays |= {f"federation/{k}": v for k, v in done.state.items()}
    about = {"rounds_done": done.rounds_done, "totals": done.totals, "server": note, "run": run}
    write_checkpoint(folder, done.rounds_done, arrays, about, keep)


def load(folder: Path, parties: Parties, run: str) -> Checkpoint | None:
    """Restore the clients and the server from the newest intact checkpoint.

    Returns:
        The state of the run, or None if there is no checkpoint.

    Raises:
        FedQHDError: If the checkpoint belongs to another run than `run`.
    """
    found = read_checkpoint(folder)
    if found is None:
        return None
    about = found.about
    if about.get("run") != run:
        raise FedQHDError(f"{found.path} belongs to a run with other settings: remove it, or set overwrite")
    try:
        check_totals(about["totals"])
        if type(about["rounds_done"]) is not int or about["rounds_done"] < 0:
            raise ValueError(f"rounds_done={about['rounds_done']!r:.80} is not a number of rounds")
        parties.restore(found.arrays, about["server"])
    except (FedQHDError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise damaged(found.path, f"its arrays or its note are not those of this run: {error}") from error
    teacher, state = (under(found.arrays, prefix) for prefix in ("teacher/", "federation/"))
    return Checkpoint(about["rounds_done"], teacher, state, about["totals"])


def check_totals(totals: Any) -> None:
    """Raise ValueError, KeyError or TypeError unless these are the totals of a run."""
    whole = [totals["rounds"], totals["steps"], totals["bytes_up"], totals["bytes_down"], *totals["metrics"]]
    seconds = list(totals["seconds"].values())
    if len(whole) != 6 or any(type(k) is not int or k < 0 for k in whole):
        raise ValueError("its totals are not numbers of rounds, steps and bytes")
    if any(type(x) not in (int, float) for x in seconds):
        raise ValueError("its seconds are not numbers")
