"""Files of named arrays: npz without pickle, a JSON note inside, a digest at the end, written whole or not at all.

Checkpoints are such files, numbered, in one folder."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd.interfaces import Array, FedQHDError, Payload

log = logging.getLogger(__name__)

VERSION = 2
"""Version 1 had no digest; it is still read, by the checksums that a zip has anyway."""
_ABOUT = "about.json"
_MARK = b"fedqhd:"
_DIGEST = 64


class DamagedFile(FedQHDError):
    """What is there is not what was written."""


class WriteFailed(FedQHDError):
    """The disk is full, or will not have it for another reason."""


def damaged(path: str | Path, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged or no FedQHD file ({why}): restore it or make it again")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write, fsync, rename: whoever reads `path` sees the old file or the new one, never half."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as f:
            f.write(data)
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


def digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def write_arrays(path: str | Path, arrays: Payload, about: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    note = json.dumps({"version": VERSION, **about}).encode()
    np.savez(buffer, **{_ABOUT: np.frombuffer(note, np.uint8)}, **arrays)  # type: ignore[arg-type]
    # A zip ends with the length of its comment and the comment. Ours is the digest of all that comes before it.
    buffer.seek(-2, os.SEEK_END)
    buffer.write((len(_MARK) + _DIGEST).to_bytes(2, "little") + _MARK)
    buffer.write(digest(buffer.getbuffer()))
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the note of a file, or one sentence on what is wrong with it."""
    try:
        data = Path(path).read_bytes()
        sealed = data[-_DIGEST - len(_MARK) : -_DIGEST] == _MARK
        if sealed and digest(memoryview(data)[:-_DIGEST]) != data[-_DIGEST:]:
            raise ValueError("its digest does not fit its content")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        version = about["version"]
        if not sealed and version == VERSION:
            raise ValueError("its digest is missing")
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


def write_checkpoint(folder: Path, number: int, arrays: Payload, about: Mapping[str, Any], keep: int) -> None:
    """The newest; of those before it the last few are kept."""
    write_arrays(folder / f"checkpoint-{number:06}.npz", arrays, about)
    for old in checkpoints(folder)[keep:]:
        old.unlink()


def read_checkpoint(folder: Path, last: int | None = None) -> Numbered | None:
    """The newest that is whole, none after number `last`; None where there is none."""
    for path in checkpoints(folder):
        if last is None or number_of(path) <= last:
            try:
                return Numbered(number_of(path), *read_arrays(path), path)
            except DamagedFile as error:
                log.warning("%s; going on with what came before it", error)
    return None
