"""What can go wrong with the programs of a federation, by a plan that follows from its seed."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from contextlib import suppress
from typing import NamedTuple

import psutil

from processes import kill_tree, start, tree

KINDS = ("kill", "kill one", "stop", "cut", "full", "clock")
SERVER = "server"
FULL = 4096
"""Bytes to which files may grow while the disk is full."""
CLOCK = 86_400
"""Seconds by which a clock may be off."""


class Fault(NamedTuple):
    at: float
    """Seconds from the beginning."""
    kind: str
    party: str
    seconds: float
    """How long it lasts; a clock stays as it is."""
    draw: float
    """A number from 0 to 1 that decides what is left to decide."""


def plan(seed: int, seconds: float, every: float, longest: float, parties: list[str]) -> list[Fault]:
    """Draw faults about `every` so many seconds, each kind as often as the others, a quarter of them at the server."""
    draw, faults, at, bag = random.Random(seed), [], 0.0, []
    while (at := at + draw.expovariate(1 / every)) < seconds:
        bag = bag or draw.sample(KINDS, len(KINDS))
        party = SERVER if draw.random() < 0.25 else draw.choice(parties)
        # A server has no relay before it: what cuts it off from one client cuts off that client.
        kind = bag.pop()
        party = draw.choice(parties) if kind == "cut" else party
        faults.append(Fault(at, kind, party, draw.uniform(1, longest), draw.random()))
    return faults


class Relay:
    """Forwards connections to a port of this machine until it is cut, and again when it is mended."""

    def __init__(self, target: int) -> None:
        self.target, self.whole, self._ends = target, True, set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.whole = False
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.whole = True

    def _accept(self) -> None:
        while True:
            near = self._listener.accept()[0]
            try:
                if not self.whole:
                    raise OSError("cut")
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._ends.discard(end)


class Party:
    """A command of the federation with all its programs, which can be hurt and healed."""

    def __init__(self, name: str, command: list, relay: Relay | None, clock, **options) -> None:
        """`clock` is the file with the seconds by which its clock is off; `options` are those of its process."""
        self.name, self.command, self.relay, self.clock, self.options = name, command, relay, clock, options
        self.said: list[str] = []
        self.dead = False
        """Whether it is to be dead now."""
        self.begin()

    def begin(self) -> None:
        self.dead = False
        self.process = start(*self.command, **self.options)
        threading.Thread(target=self.said.extend, args=(self.process.stdout,), daemon=True).start()

    def alive(self) -> bool:
        return self.process.poll() is None

    def hurt(self, fault: Fault) -> None:
        family = tree(self.process) if self.alive() else []
        if fault.kind == "kill":
            self.dead = True
            kill_tree(self.process)
        elif fault.kind == "kill one" and family:
            self._signal([family[int(fault.draw * len(family))]], signal.SIGKILL)
        elif fault.kind == "stop":
            self._signal(family, signal.SIGSTOP)
        elif fault.kind == "cut":
            self.relay.cut()
        elif fault.kind == "full":
            self._limit_files(FULL)
        elif fault.kind == "clock":
            self.clock.write_text(str((2 * fault.draw - 1) * CLOCK))

    def heal(self, kind: str) -> None:
        if kind == "kill" and self.dead:
            self.begin()
        elif kind == "stop":
            self._signal(tree(self.process), signal.SIGCONT)
        elif kind == "cut":
            self.relay.mend()
        elif kind == "full":
            self._limit_files(psutil.RLIM_INFINITY)

    def _signal(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _limit_files(self, size: int) -> None:
        for pid in tree(self.process):
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                hard = psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)[1]
                psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (size, hard))
