"""Files of named arrays: npz without pickle, a JSON note inside, a checksum at the end, written whole or not at all.

Checkpoints are such files, numbered, in one folder."""

from __future__ import annotations

import io
import json
import logging
import math
import mmap
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload

log = logging.getLogger(__name__)

VERSION = 4
"""Models of earlier versions are still read. Checkpoints of earlier versions are not: they name the state otherwise."""
SEALED = 3
"""The first version with a checksum of the whole; those before it have only what a zip has for its parts."""
_ABOUT = "about.json"
_MARK = b"fedqhd:"
_CHECK = 8


class DamagedFile(FedQHDError):
    """What is there is not what was written."""


class WriteFailed(FedQHDError):
    """The disk is full, or will not have it for another reason."""


def damaged(path: str | Path, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged or no FedQHD file ({why}): restore it or make it again")


def write_bytes(path: str | Path, data: bytes) -> None:
    write_whole(path, lambda f: f.write(data))


def write_whole(path: str | Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write, fsync, rename: whoever reads `path` sees the old file or the new one, never half."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "w+b") as f:
            fill(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)  # gives the space back, too
        raise failed(path, error) from error


def failed(path: Path, error: OSError) -> WriteFailed:
    return WriteFailed(f"{path} cannot be written ({error.strerror or error}): make room or give another folder")


def sync_folder(folder: Path) -> None:
    """A rename is on the disk when the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check(data: Any) -> bytes:
    return b"%08x" % zlib.crc32(data)


def write_arrays(path: str | Path, arrays: Payload, about: Mapping[str, Any]) -> None:
    note = json.dumps({"version": VERSION, **about}).encode()

    def fill(f: IO[bytes]) -> None:
        np.savez(f, **{_ABOUT: np.frombuffer(note, np.uint8)}, **arrays)  # type: ignore[arg-type]
        # A zip ends with the length of its comment and the comment. Ours is the checksum of all that comes before it.
        f.seek(-2, os.SEEK_END)
        f.write((len(_MARK) + _CHECK).to_bytes(2, "little") + _MARK)
        f.flush()
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as written:
            f.write(check(written))

    write_whole(path, fill)


def read_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the note of a file, or one sentence on what is wrong with it."""
    try:
        data = Path(path).read_bytes()
        sealed = data[-_CHECK - len(_MARK) : -_CHECK] == _MARK
        if sealed and check(memoryview(data)[:-_CHECK]) != data[-_CHECK:]:
            raise ValueError("its checksum does not fit its content")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        version = about["version"]
        if not sealed and version in range(SEALED, VERSION + 1):
            raise ValueError("its checksum is missing")
    except FileNotFoundError:
        raise FedQHDError(f"{path} does not exist") from None
    except Exception as error:  # a damaged zip can raise nearly anything, and all of it means the same
        raise damaged(path, str(error) or type(error).__name__) from error
    if version not in range(1, VERSION + 1):
        raise FedQHDError(
            f"{path} has file version {version}, and this FedQHD reads versions up to {VERSION}: use a newer FedQHD"
        )
    return arrays, about


class Numbered(NamedTuple):
    number: int
    arrays: dict[str, Array]
    about: dict[str, Any]
    path: Path


def checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("checkpoint-" + 6 * "[0-9]" + "*.npz"), key=number_of, reverse=True)


def number_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


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


def write_checkpoint(folder: Path, number: int, arrays: Payload, about: Mapping[str, Any], keep: int) -> None:
    """The newest; of those before it the last few are kept."""
    data, index = pack(arrays)
    write_arrays(folder / f"checkpoint-{number:06}.npz", {"data": data}, {**about, "index": index})
    for old in checkpoints(folder)[keep:]:
        old.unlink()


def read_checkpoint(folder: Path) -> Numbered | None:
    """The newest that is whole; None where there is none."""
    for path in checkpoints(folder):
        try:
            packed, about = read_arrays(path)
        except DamagedFile as error:
            log.warning("%s; going on with what came before it", error)
            continue
        if about["version"] == VERSION:
            return Numbered(number_of(path), unpack(packed["data"], about.pop("index")), about, path)
        log.warning("%s is of an earlier FedQHD, with which this one cannot go on", path)
    return None
