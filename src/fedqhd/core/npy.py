"""Reading arrays from npy and npz files of strangers, whose sizes are checked before anything is unpacked.

A few bytes can claim to be gigabytes: a zip file expands, and the header of an array asks for as much memory as it
likes. Pickles, which can run code, and other types than numbers are never read.
"""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from fedqhd.core.protocols import Array

NUMBERS = "biufc"
"""The kinds of numpy's types that are numbers."""
MAGIC = b"PK"
"""How a zip file, and therefore an npz file, begins."""


def read_regular(path: str | Path) -> bytes:
    """Return the content of a file. Raises ValueError for a device or a pipe, which may have no end."""
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError("it is not a regular file")
    return Path(path).read_bytes()


def read_npz(data: bytes, unpacked: int = 0) -> dict[str, Array]:
    """Return the arrays of an npz file.

    Args:
        data: The content of the file.
        unpacked: How many bytes the arrays of a compressed file may have; 0 refuses compressed files.

    Raises:
        ValueError: If it holds more than its size or `unpacked`, or anything but arrays of numbers. A damaged zip file
            may raise other exceptions, too.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        for member in members:
            stored = member.compress_type == zipfile.ZIP_STORED and member.file_size == member.compress_size
            if not (stored or unpacked):
                raise ValueError(f"{member.filename!r} is compressed: numpy.savez writes arrays as they are")
        total, most = sum(member.file_size for member in members), max(len(data), unpacked)
        if total > most:
            raise ValueError(f"it claims to hold {total:,} bytes, and at most {most:,} are read")
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names):
            raise ValueError("two of its arrays have the same name")
        arrays = {}
        for name, member in zip(names, members, strict=True):
            with archive.open(member) as f:
                arrays[name] = read_npy(f, member.file_size)
        return arrays


def read_npy(f: IO[bytes], size: int) -> Array:
    """Return the array of an npy file of `size` bytes. Raises ValueError if it does not hold as many numbers."""
    version = npy.read_magic(f)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"the version {version} of its npy format is unknown")
    header: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(f)
    check_numbers(dtype, shape, size - f.tell())
    f.seek(0)
    return np.asarray(npy.read_array(f, allow_pickle=False))


def check_numbers(dtype: np.dtype[Any], shape: Any, size: int) -> None:
    """Raise ValueError unless `size` bytes are exactly an array of numbers of this type and shape."""
    if dtype.kind not in NUMBERS:
        raise ValueError(f"it holds an array of the type {dtype}, which is not one of numbers")
    if not all(type(k) is int and k >= 0 for k in shape) or dtype.itemsize * math.prod(shape) != size:
        raise ValueError(f"{size} bytes are not an array of {dtype} of the shape {tuple(shape)!r:.80}")
