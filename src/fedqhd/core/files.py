"""Reading and writing files of named arrays.

Such a file is an npz archive without pickles. It contains a JSON note and ends with a checksum, and it is written
atomically. Checkpoints are numbered files of this kind in one folder.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.npy import check_numbers, read_npz, read_regular
from fedqhd.core.protocols import Array, Payload

log = logging.getLogger(__name__)

VERSION = 4
"""The version of the file format.

Models of earlier versions can still be read. Checkpoints of earlier versions cannot, because they name the state
differently.
"""
SEALED = 3
"""The first version with a checksum of the whole file; earlier files only have the checksums of the zip format."""
_ABOUT = "about.json"
_MARK = b"fedqhd:"
_CHECK = 8


class DamagedFile(FedQHDError):
    """The content of a file is not what was written."""


class WriteFailed(FedQHDError):
    """A file could not be written, for instance because the disk is full."""


def damaged(path: str | Path, why: str) -> DamagedFile:
    """Return the error for a damaged file; `why` says what is wrong with it."""
    return DamagedFile(f"{path} is damaged or not a FedQHD file ({why}): restore it or make it again")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file atomically; see `write_whole`."""
    write_whole(path, lambda f: f.write(data))


def write_whole(path: str | Path, fill: Callable[[IO[bytes]], Any], *, durable: bool = True) -> None:
    """Write a file atomically, so that a reader sees either the old file or the new one.

    Args:
        path: The file. Its folder is created if necessary.
        fill: Writes the content to the open file that it is given.
        durable: Whether to return only when the file is on the disk, so that it survives a power failure. If not, call
            `make_durable`.

    Raises:
        WriteFailed: If the file system refuses. The old file then remains as it was.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "w+b") as f:
            fill(f)
            f.flush()
            if durable:
                os.fsync(f.fileno())
        os.replace(part, path)
        if durable:
            sync(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()  # also frees the space
        raise write_failed(path, error) from error


def write_failed(path: Path, error: OSError) -> WriteFailed:
    """Return the error for a file that could not be written."""
    return WriteFailed(f"{path} cannot be written ({error.strerror or error}): make room or give another folder")


def write_secret(path: Path, data: bytes) -> None:
    """Write a file atomically that only its owner can ever read; raises WriteFailed if that is not possible."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        part.touch(0o600)
        part.write_bytes(data)
        part.rename(path)
    except OSError as error:
        raise write_failed(path, error) from error


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_durable(folder: Path) -> None:
    """Flush all files of a folder to the disk, which takes much less time for thousands of them than one by one.

    Raises:
        WriteFailed: If the file system refuses.
    """
    try:
        for path in [*folder.iterdir(), folder]:
            sync(path)
    except OSError as error:
        raise write_failed(folder, error) from error


def checksum(data: Any) -> bytes:
    """Return the CRC-32 of the data as eight hexadecimal digits."""
    return b"%08x" % zlib.crc32(data)


def write_arrays(path: str | Path, arrays: Payload, about: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write named arrays and a note of JSON values, `about`, to a file; see `write_whole`."""
    note = json.dumps({"version": VERSION, **about}).encode()

    def fill(f: IO[bytes]) -> None:
        np.savez(f, **{_ABOUT: np.frombuffer(note, np.uint8)}, **arrays)  # type: ignore[arg-type]
        # A zip file ends with a comment and its length. Our comment is the checksum of everything before it.
        f.seek(-2, os.SEEK_END)
        f.write((len(_MARK) + _CHECK).to_bytes(2, "little") + _MARK)
        f.flush()
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as written:
            f.write(checksum(written))

    write_whole(path, fill, durable=durable)


def read_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the note of a file.

    Raises:
        DamagedFile: If the file is not what `write_arrays` wrote.
        FedQHDError: If the file does not exist or was written by a newer FedQHD.
    """
    try:
        data = read_regular(path)
        sealed = data[-_CHECK - len(_MARK) : -_CHECK] == _MARK
        if sealed and checksum(memoryview(data)[:-_CHECK]) != data[-_CHECK:]:
            raise ValueError("its checksum does not match its content")
        arrays = read_npz(data)
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        if not isinstance(about, dict) or type(about.get("version")) is not int:
            raise ValueError("its note has no version")
        version = about["version"]
        if not sealed and version in range(SEALED, VERSION + 1):
            raise ValueError("its checksum is missing")
    except FileNotFoundError:
        raise FedQHDError(f"{path} does not exist") from None
    except Exception as error:  # a damaged zip file can raise nearly any exception
        raise damaged(path, str(error) or type(error).__name__) from error
    if version not in range(1, VERSION + 1):
        raise FedQHDError(
            f"{path} has file version {version}, and this FedQHD reads versions up to {VERSION}: use a newer FedQHD"
        )
    return arrays, about


class NumberedCheckpoint(NamedTuple):
    """The content of a checkpoint file, with its number and path."""

    number: int
    arrays: dict[str, Array]
    about: dict[str, Any]
    path: Path


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files of a folder, newest first."""
    return sorted(folder.glob("checkpoint-" + 6 * "[0-9]" + "*.npz"), key=number_of, reverse=True)


def number_of(path: Path) -> int:
    """Return the number of a checkpoint file."""
    return int(path.stem.partition("-")[2])


def pack(arrays: Payload) -> tuple[Array, list[Any]]:
    """Concatenate arrays into one of bytes, because a zip file with a hundred small members is mostly overhead.

    Returns:
        The bytes, and an index of (name, dtype, shape) from which `unpack` restores the arrays.
    """
    index = [[name, v.dtype.str, v.shape] for name, v in arrays.items()]
    return np.frombuffer(b"".join(np.ascontiguousarray(v).data for v in arrays.values()), np.uint8), index


def unpack(data: Array, index: list[Any]) -> dict[str, Array]:
    """Return the arrays that `pack` concatenated.

    Raises:
        ValueError: If the index does not describe the data. An index of other types may raise other exceptions, too.
    """
    if data.ndim != 1 or data.dtype != np.uint8:
        raise ValueError(f"its data are {data.dtype} of shape {data.shape}, not bytes")
    arrays: dict[str, Array] = {}
    at = 0
    for name, kind, shape in index:
        dtype = np.dtype(str(kind))
        size = dtype.itemsize * math.prod(shape)
        check_numbers(dtype, shape, min(size, len(data) - at))
        if not isinstance(name, str) or name in arrays:
            raise ValueError(f"its index has the name {name!r:.80} twice or for no array")
        arrays[name] = data[at : at + size].copy().view(dtype).reshape(shape)
        at += size
    if at != len(data):
        raise ValueError(f"its index describes {at} of its {len(data)} bytes")
    return arrays


def write_checkpoint(folder: Path, number: int, arrays: Payload, about: Mapping[str, Any], keep: int) -> None:
    """Write checkpoint `number` to a folder and delete all but the newest `keep` checkpoints in it."""
    data, index = pack(arrays)
    write_arrays(folder / f"checkpoint-{number:06}.npz", {"data": data}, {**about, "index": index})
    for old in checkpoints(folder)[keep:]:
        old.unlink()


def read_checkpoint(folder: Path) -> NumberedCheckpoint | None:
    """Return the newest undamaged checkpoint of a folder, or None if there is none."""
    for path in checkpoints(folder):
        try:
            packed, about = read_arrays(path)
            if about["version"] == VERSION:
                return NumberedCheckpoint(number_of(path), _unpacked(path, packed, about), about, path)
        except DamagedFile as error:
            log.warning("%s; continuing from the checkpoint before it", error)
            continue
        log.warning("%s was written by an earlier FedQHD, and this version cannot resume from it", path)
    return None


def _unpacked(path: Path, packed: Payload, about: dict[str, Any]) -> dict[str, Array]:
    """Return the arrays of a checkpoint, and take its index out of its note."""
    try:
        return unpack(packed["data"], about.pop("index"))
    except Exception as error:  # an index may hold anything that JSON can express
        raise damaged(path, f"its index does not fit its data: {error}") from error
