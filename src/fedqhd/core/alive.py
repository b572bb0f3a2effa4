"""Tells whether a process is training a run.

The process that trains a run holds a lock on a file in its folder. The system releases the lock when the process ends,
however it ends, so that a run whose process was killed is never taken for one in progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_failed

try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where a run is never seen as being in progress
    fcntl = None  # type: ignore[assignment]

NAME = "training.lock"
PATIENCE = 10.0
"""Seconds that a process which was told to end has to release the folder."""

_held: set[int] = set()


@contextmanager
def training(folder: Path) -> Iterator[None]:
    """Mark a run as being trained by this process, until the context ends or the process does.

    Args:
        folder: The folder of the run, which is created if necessary.

    Raises:
        FedQHDError: If another process is training the run, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder)
    except OSError as error:
        raise write_failed(folder, error) from error
    _held.add(lock)
    try:
        yield
    finally:
        _held.discard(lock)
        (folder / NAME).unlink(missing_ok=True)
        os.close(lock)


def is_training(folder: Path) -> bool:
    """Tell whether a process, perhaps this one, is training the run in a folder."""
    try:
        lock = os.open(folder / NAME, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if fcntl:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _acquire(folder: Path) -> int:
    """Open and lock the file, or raise FedQHDError if another process keeps it locked for longer than PATIENCE."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        lock = os.open(folder / NAME, os.O_CREAT | os.O_RDWR, 0o644)
        with suppress(BlockingIOError, FileNotFoundError):
            if fcntl:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock before may have deleted the file since it was opened here.
            if os.path.samestat(os.fstat(lock), os.stat(folder / NAME)):
                return lock
        os.close(lock)
        time.sleep(0.05)
    raise FedQHDError(
        f"out={str(folder)!r} is being trained by another process: wait for its end or give another folder"
    )


def _release_in_child() -> None:
    """Close inherited locks in a forked process, so that a worker which outlives its parent does not keep them."""
    for lock in _held:
        os.close(lock)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
