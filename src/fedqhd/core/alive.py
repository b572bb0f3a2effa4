"""Tells whether a process is training a run.

The process that trains a run holds a lock on a file in its folder. The system releases the lock when the process ends,
however it ends, so that a run whose process was killed is never taken for one in progress. Some network file systems
have no locks; there, what counts is whether the process that the file names is alive.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_failed

try:
    import fcntl
except ModuleNotFoundError:  # on Windows, where a run is never seen as being in progress
    fcntl = None  # type: ignore[assignment]

NAME = "training.lock"
PATIENCE = 10.0
"""Seconds that a process which was told to end has to release the folder."""
SETTLE = 0.2
"""Seconds after which a process that came at the same moment has deleted our file, where there are no locks."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""The errors of file systems without locks."""

_held: set[int] = set()


class Owner(NamedTuple):
    """The process that trains a run, as the file names it."""

    host: str
    pid: int
    started: str
    """When it was started, by the clock of its system, since process numbers are used again."""

    def lives(self) -> bool:
        """Tell whether the process is alive. A process on another machine is, as far as this one can tell."""
        return self.host != socket.gethostname() or started(self.pid) == self.started


def started(pid: int) -> str | None:
    """Return when a process was started, "" if the system does not say, or None if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


@contextmanager
def training(folder: Path, setting: str = "out") -> Iterator[None]:
    """Mark a run as being trained by this process, until the context ends or the process does.

    Args:
        folder: The folder of the run, which is created if necessary.
        setting: The setting that names the folder, for error messages.

    Raises:
        FedQHDError: If another process is training the run, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder, setting)
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
    path = folder / NAME
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        locked = _lock(lock, exclusive=False)
    finally:
        os.close(lock)
    return _has_living_owner(path) if locked is None else not locked


def _acquire(folder: Path, setting: str) -> int:
    """Open and lock the file, or raise FedQHDError if another process keeps it for longer than PATIENCE."""
    path, end = folder / NAME, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(FileNotFoundError, FileExistsError):  # another process was faster
            lock = _take(path)
            if lock is not None:
                return lock
        time.sleep(0.05)
    owner = _owner(path)
    who = f" (number {owner.pid} on {owner.host}; if it is gone, delete {path})" if owner else ""
    raise FedQHDError(
        f"{setting}={str(folder)!r} is being trained by another process{who}: wait for its end or give another folder"
    )


def _take(path: Path) -> int | None:
    """Return the open file if this process has it now, or None if another one has it."""
    lock, taken = os.open(path, os.O_CREAT | os.O_RDWR, 0o644), False
    try:
        locked = _lock(lock, exclusive=True)
        if locked is None:
            return _take_without_locks(path)
        # The process that held the lock before may have deleted the file since it was opened here.
        taken = locked and os.path.samestat(os.fstat(lock), os.stat(path))
        if taken:
            _sign(lock)
        return lock if taken else None
    finally:
        if not taken:
            os.close(lock)


def _take_without_locks(path: Path) -> int | None:
    """Like `_take`, on a file system without locks."""
    if _has_living_owner(path):
        return None
    path.unlink(missing_ok=True)
    lock = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    _sign(lock)
    time.sleep(SETTLE)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    os.close(lock)
    return None


def _lock(lock: int, exclusive: bool) -> bool | None:
    """Lock an open file. Returns whether that was possible, or None if the file system has no locks."""
    try:
        if fcntl:
            fcntl.flock(lock, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return None
    return True


def _sign(lock: int) -> None:
    """Write into the file that this process has it."""
    os.truncate(lock, 0)
    os.pwrite(lock, f"{socket.gethostname()} {os.getpid()} {started(os.getpid())}".encode(), 0)


def _owner(path: Path) -> Owner | None:
    """Return the process that the file names; None if it names none."""
    with suppress(OSError, ValueError):
        host, pid, *rest = path.read_text().split(" ")
        return Owner(host, int(pid), " ".join(rest))
    return None


def _has_living_owner(path: Path) -> bool:
    owner = _owner(path)
    return owner is not None and owner.lives()


def _release_in_child() -> None:
    """Close inherited locks in a forked process, so that a worker which outlives its parent does not keep them."""
    for lock in _held:
        os.close(lock)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
