"""Programs under test in groups of their own: what they print, what they listen on, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

FEDQHD = Path(sys.executable).parent / "fedqhd"
PATIENCE = 600.0
"""Seconds after which something is wrong, however busy the machine may be."""


def fedqhd(*args, cwd=None, **env):
    """The command line, to its end, without a display."""
    command = [str(FEDQHD), *map(str, args)]
    quiet = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**quiet, **env})


def start(*command, **options):
    """In a session of its own, so that its whole group can be asked about and signalled."""
    return subprocess.Popen(
        list(map(str, command)), start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", **options,
    )  # fmt: skip


def python_path(*folders):
    """The path on which a program finds modules in these folders, before those that this one finds."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def read_until(process, words):
    """Lines up to the one that has `words` in it; fails where the program ends without it."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return "".join(seen)
    raise AssertionError(f"{words!r} was never said, but: {''.join(seen)}")


def stat(pid):
    """(state, parent) of a process; None where there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return words[0], int(words[1])


def tree(process):
    """A process and all that came of it, as far as they live."""
    parents = {int(p.name): stat(p.name) for p in Path("/proc").glob("[0-9]*")}
    found = {process.pid}
    while True:
        more = {pid for pid, s in parents.items() if s and s[0] != "Z" and s[1] in found} - found
        if not more:
            return sorted(pid for pid in found if (stat(pid) or "Z")[0] != "Z")
        found |= more


def gone_pid(pid, seconds=10.0):
    """Whether a process has ended, if need be after a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (stat(pid) or "Z")[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def kill_tree(process):
    """As when the power fails: all at once, with no word to anyone."""
    for pid in tree(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(10)


def end(process):
    """Whatever is left of it."""
    kill_tree(process)


def listening(pids):
    """Addresses that these processes listen on."""
    sockets = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(fd)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            entry = line.split()
            if entry[3] == "0A" and entry[9] in sockets:
                words = entry[1].partition(":")[0]
                raw = b"".join(struct.pack("<I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
                address = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
                found.add(address.removeprefix("::ffff:"))
    return found


SHIFTED = """
import datetime, os, time

class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

def shift():
    try:
        return float(open(os.environ["SHIFT"]).read() or 0)
    except OSError:
        return 0.0

wall = time.time
time.time = lambda: wall() + shift()
datetime.datetime = Shifted
"""
"""A sitecustomize that shifts the clock of a program by the number of seconds in a file."""


def shifted(folder, seconds):
    """What the surroundings of a program must have for its clock to be off; the file can be changed later."""
    (folder / "clock").mkdir(exist_ok=True)
    (folder / "clock" / "sitecustomize.py").write_text(SHIFTED)
    (folder / "clock" / "shift").write_text(str(seconds))
    return {"PYTHONPATH": python_path(folder / "clock"), "SHIFT": str(folder / "clock" / "shift")}
