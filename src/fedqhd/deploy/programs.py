"""Start and stop Flower's programs: their environment and ports, and that no process is left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from random import SystemRandom
from typing import IO, TYPE_CHECKING

from fedqhd.core.errors import FedQHDError
from fedqhd.deploy.flower import write_scripts
from fedqhd.deploy.guard import LOOPBACK
from fedqhd.deploy.rules import VARIABLE, Rules
from fedqhd.engines.flower import QUIET

if TYPE_CHECKING:
    import psutil

BIN = Path(sys.executable).parent
"""The folder of this Python, in which Flower's programs are installed."""
PATIENCE = 10.0
"""Seconds that a program has to end by itself."""
GRACE = 2.0
"""Seconds that its children have after it to end by themselves."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
RULES, SCRIPTS = "rules.json", "bin"
"""The file and the folder in a home of Flower that `write_rules` makes."""

_started: set[int] | None = None
"""The children of this process that are not orphans, if it adopts these: those that `start` has started, and older
ones."""


def write_rules(rules: Rules, home: Path) -> None:
    """Write the rules of a machine, and scripts by which Flower's programs keep to them, to the home of Flower."""
    rules.write(home / RULES)
    write_scripts(home / SCRIPTS)


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment variables of Flower's programs, whose files go to the folder `home`.

    The programs find each other by PATH, talk to each other without a proxy, and poll for tasks ten times a second
    instead of once.
    """
    path = os.pathsep.join([str(home / SCRIPTS), str(BIN), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home), VARIABLE: str(home / RULES), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
    direct = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), *LOOPBACK]))
    return {**os.environ, **QUIET, "PATH": path, "no_proxy": direct, "NO_PROXY": direct, **own}


def set_process_option(option: int, value: int) -> None:
    """Set an option of this process. It has an effect on Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def end_with_parent() -> None:
    """Let this child process end when its parent does, even if the parent is killed."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the parent of every process whose parent among the descendants of this one ends before it.

    From then on `stop` ends them too, so this is for commands whose children all come from `start`.
    """
    import psutil

    global _started
    if _started is None:
        _started = {process.pid for process in psutil.Process().children()}
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)


def start(
    command: Sequence[str], home: Path, output: IO[str] | int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program in its own session, so that Ctrl-C reaches only this process.

    Args:
        command: The program and its arguments.
        home: Where Flower keeps its files.
        output: Where standard output and standard error go.
        environment: Further environment variables.
    """
    program = subprocess.Popen(
        command, env={**flower_environment(home), **(environment or {})}, stdout=output, stderr=subprocess.STDOUT,
        text=True, errors="replace", stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent,
    )  # fmt: skip
    if _started is not None:
        _started.add(program.pid)
    return program


def open_log(path: Path) -> IO[str]:
    """Open a new, empty log for a program.

    Children of the program that wrote the last log may live a moment longer. They keep writing to the old file; in the
    new one they would leave a gap behind which a reader misses what the new program writes.
    """
    path.unlink(missing_ok=True)
    return path.open("a")


def stop(program: subprocess.Popen[str] | None) -> None:
    """Stop a program and every process that came of it, also those in sessions of their own; None does nothing."""
    if program is None:
        return
    import psutil

    family = offspring(program.pid)
    program.terminate()
    with suppress(subprocess.TimeoutExpired):
        program.wait(PATIENCE)
    left = psutil.wait_procs(family, timeout=GRACE)[1]
    kill({*left, *(child for one in left for child in offspring(one.pid)), *offspring(program.pid)})
    program.kill()
    program.wait()
    end = time.monotonic() + GRACE
    while (found := orphans()) and time.monotonic() < end:  # the end of one makes orphans of its children
        kill({*found, *(child for one in found for child in offspring(one.pid))})


def kill(processes: Collection[psutil.Process]) -> None:
    """Kill processes and wait until they have ended."""
    import psutil

    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=GRACE)


def orphans() -> list[psutil.Process]:
    """Return the processes that this one has adopted."""
    import psutil

    if _started is None:
        return []
    return [process for process in psutil.Process().children() if process.pid not in _started]


def offspring(pid: int) -> list[psutil.Process]:
    """Return the processes that a process has started, with theirs."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def is_loopback(host: str) -> bool:
    """Tell whether a name or address stands for this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_port(host: str, port: int) -> None:
    """Raise FedQHDError unless a server can listen on this port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FedQHDError(
                f"port={port} on host={host!r} is not available ({error.strerror}): give another --port or --host"
            ) from error


PORTS = range(20_000, 32_768)
"""Ports below the range for outgoing connections, from which the system could take a port before we listen on it."""


def free_port() -> int:
    """Return a free port on loopback for a node's own programs."""
    for port in SystemRandom().sample(PORTS, 100):
        with suppress(FedQHDError):
            check_port("127.0.0.1", port)
            return port
    raise FedQHDError(
        f"none of 100 ports of 127.0.0.1 between {PORTS[0]} and {PORTS[-1]} is available: give one with --port"
    )


def is_listening(host: str, port: int) -> bool:
    """Tell whether something accepts connections on this port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


def parse_address(address: str) -> tuple[str, int]:
    """Parse HOST:PORT into (host, port).

    Raises:
        FedQHDError: If it does not have this form.
    """
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal() and 0 < int(port) < 65536:
        return host.strip("[]"), int(port)
    raise FedQHDError(f"server={address!r} is not an address: give HOST:PORT, e.g. 127.0.0.1:9093")
