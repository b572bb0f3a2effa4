"""Files of named arrays: npz without pickle, a JSON note inside, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.interfaces import Array, FedQHDError, Payload

VERSION = 1
_ABOUT = "about.json"


def damaged(path: str | Path, why: str) -> FedQHDError:
    return FedQHDError(f"{path} is damaged or no FedQHD file ({why}): restore it or make it again")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write, fsync, rename: whoever reads `path` sees the old file or the new one, never half."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(part, path)


def write_arrays(path: str | Path, arrays: Payload, about: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    note = json.dumps({"version": VERSION, **about}).encode()
    # savez writes a zip, and a zip carries a checksum of each member: damage is noticed on reading.
    np.savez(buffer, **{_ABOUT: np.frombuffer(note, np.uint8)}, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the note of a file, or one sentence on what is wrong with it."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        version = about["version"]
    except FileNotFoundError:
        raise FedQHDError(f"{path} does not exist") from None
    except Exception as error:  # a damaged zip can raise nearly anything, and all of it means the same
        raise damaged(path, str(error) or type(error).__name__) from error
    if version != VERSION:
        raise FedQHDError(f"{path} has file version {version}, and this FedQHD reads version {VERSION}")
    return arrays, about
