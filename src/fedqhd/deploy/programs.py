"""Flower's programs as ours to start and to end: their surroundings, their ports, and that none is left behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from random import SystemRandom
from typing import IO

from fedqhd.core.errors import FedQHDError
from fedqhd.engines.flower import QUIET

HERE = Path(sys.executable).parent
PATIENCE = 10.0
"""Seconds that a program has to end by itself."""
PR_SET_PDEATHSIG = 1


def surroundings(home: Path) -> dict[str, str]:
    """`home` is where Flower keeps its things. Its programs find each other by PATH, and look for work ten times a
    second, not once."""
    path = os.pathsep.join([str(HERE), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


def end_with_parent() -> None:
    """In a child: end when the parent does, even by kill -9. Linux only; elsewhere it would be left behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start(
    command: Sequence[str], home: Path, output: IO[str] | int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A program in a session of its own, so that Ctrl-C is ours to answer."""
    return subprocess.Popen(
        command, env={**surroundings(home), **(environment or {})}, stdout=output, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent,
    )  # fmt: skip


def stop(program: subprocess.Popen[str] | None) -> None:
    """With all that it started."""
    if program is None:
        return
    program.terminate()
    with suppress(subprocess.TimeoutExpired):
        program.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def program(name: str) -> str:
    """One of Flower's, beside this Python."""
    found = shutil.which(name, path=os.pathsep.join([str(HERE), os.environ.get("PATH", "")]))
    if found is None:
        raise FedQHDError("fedqhd federate needs Flower: install it with pip install 'fedqhd[flower]'")
    return found


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FedQHDError(
                f"port={port} on host={host!r} cannot be had ({error.strerror}): give another --port or --host"
            ) from error


PORTS = range(20_000, 32_768)
"""Below those that systems give to outgoing connections: one of these could be gone before it is listened on."""


def free_port() -> int:
    """On loopback, for a node's own programs."""
    for port in SystemRandom().sample(PORTS, 100):
        with suppress(FedQHDError):
            check_port("127.0.0.1", port)
            return port
    raise FedQHDError(f"none of 100 ports of 127.0.0.1 from {PORTS[0]} to {PORTS[-1]} can be had: give one by --port")


def answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


def parse_address(address: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal() and 0 < int(port) < 65536:
        return host.strip("[]"), int(port)
    raise FedQHDError(f"server={address!r} is no address: give HOST:PORT, e.g. 127.0.0.1:9093")
