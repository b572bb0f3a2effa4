"""Everything that the rest of a run depends on, after each round, in one file; the last few of them are kept."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd.client import LocalClient
from fedqhd.federation import Attacked, Server
from fedqhd.files import VERSION, DamagedFile, read_arrays, write_arrays
from fedqhd.interfaces import Array, Engine, FedQHDError, Payload, under

log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    rounds_done: int
    teacher: Payload
    totals: dict[str, Any]


class Parties(NamedTuple):
    """All that has a state: the clients, wherever they live, the server and, in experiments with attacks, the liars."""

    engine: Engine
    server: Server

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, note = self.server.state()
        states = {"server": arrays, **dict(self.engine.each(state_of))}
        if isinstance(self.engine, Attacked):
            states["attacked"] = self.engine.state()
        return {f"{who}/{name}": v for who, state in states.items() for name, v in state.items()}, note

    def restore(self, arrays: Payload, note: dict[str, Any]) -> None:
        self.server.restore(under(arrays, "server/"), note)
        self.engine.each(partial(restore_from, arrays))
        if isinstance(self.engine, Attacked):
            self.engine.restore(under(arrays, "attacked/"))


def state_of(client: LocalClient) -> tuple[str, Payload]:
    return f"{client.index}", client.state()


def restore_from(arrays: Payload, client: LocalClient) -> None:
    client.restore(under(arrays, f"{client.index}/"))


def paths(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted(folder.glob("checkpoint-*.npz"), key=lambda p: (len(p.name), p.name), reverse=True)


def pack(arrays: Payload) -> tuple[Array, list[Any]]:
    """All arrays as one, and what is where: a file of a hundred small members costs more than what is in them."""
    index = [[name, v.dtype.str, v.shape] for name, v in arrays.items()]
    return np.frombuffer(b"".join(np.ascontiguousarray(v).data for v in arrays.values()), np.uint8), index


def unpack(data: Array, index: list[Any]) -> dict[str, Array]:
    arrays, at = {}, 0
    for name, dtype, shape in index:
        size = np.dtype(dtype).itemsize * math.prod(shape)
        arrays[name] = data[at : at + size].copy().view(dtype).reshape(shape)
        at += size
    return arrays


def save(
    folder: Path, rounds_done: int, teacher: Payload, parties: Parties, totals: dict[str, Any], run: str, keep: int
) -> None:
    """`run` says which run it is, so that no other goes on with it."""
    arrays, note = parties.state()
    arrays |= {f"teacher/{k}": v for k, v in teacher.items()}
    data, index = pack(arrays)
    about = {"rounds_done": rounds_done, "totals": totals, "server": note, "run": run, "index": index}
    write_arrays(folder / f"checkpoint-{rounds_done:06}.npz", {"data": data}, about)
    for old in paths(folder)[keep:]:
        old.unlink()


def load(folder: Path, parties: Parties, run: str) -> Checkpoint | None:
    """Restore everyone from the newest checkpoint that is whole; None where there is none, and the run begins."""
    for path in paths(folder):
        try:
            packed, about = read_arrays(path)
        except DamagedFile as error:
            log.warning("%s; going on with what came before it", error)
            continue
        if about["version"] != VERSION:
            log.warning("%s is of an earlier FedQHD, with which this one cannot go on", path)
            continue
        if about["run"] != run:
            raise FedQHDError(f"{path} belongs to a run with other settings: remove it, or give --overwrite")
        arrays = unpack(packed["data"], about["index"])
        parties.restore(arrays, about["server"])
        return Checkpoint(about["rounds_done"], under(arrays, "teacher/"), about["totals"])
    return None
