"""The process engine: clients live in worker processes, one per core. Only teachers, replies and episodes travel."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from time import process_time
from typing import Any, NamedTuple, TypeVar

from fedqhd.agents.client import LocalClient, Measure, ignore, measure_nothing
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Episode, Federation, Payload, Quota, Reply
from fedqhd.engines.local import Reachable

T = TypeVar("T")
Tell = Callable[[Episode], None]
Task = Callable[[LocalClient, Federation, Tell], Any]
"""(client, the worker's copy of the federation, callback for episodes) -> the result for this client."""

GONE = (EOFError, BrokenPipeError, ConnectionResetError)
"""What a pipe raises when the process at its other end has ended."""
PATIENCE = 5.0
"""Seconds that a worker has to end by itself."""
STEP = 10_000
"""The fixed cost of a step, as the number of weights that are updated in the same time. It is lower on CartPole and
higher on LunarLander."""


def cores() -> int:
    """Return the number of cores that this process may use; 1 where it cannot fork, as in a daemonic process."""
    if "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _round(teacher: Payload | None, quota: Quota, client: LocalClient, federation: Federation, tell: Tell) -> Reply:
    return client.round(federation, teacher, quota, tell)


def _install(teacher: Payload, client: LocalClient, federation: Federation, tell: Tell) -> None:
    federation.install(client, teacher)


def _trial(
    teacher: Payload, measure: Measure, trial: Trial, client: LocalClient, federation: Federation, tell: Tell
) -> tuple[int, Array]:
    return client.index, client.trial(federation, teacher, measure, trial)


def _apply(f: Callable[[LocalClient], T], client: LocalClient, federation: Federation, tell: Tell) -> T:
    return f(client)


def _work(
    clients: Sequence[LocalClient], federation: Federation, pipe: Connection, others: Sequence[Connection]
) -> None:
    """Run a worker: receive tasks, send episodes, results and errors, and return when the parent closes the pipe."""
    # A forked worker inherits the ends of other pipes. If they stayed open, it would not notice the parent's death.
    for end in others:
        end.close()
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def tell(episode: Episode) -> None:
        pipe.send(("episode", episode))

    with contextlib.suppress(*GONE):
        while True:
            task, wanted = pipe.recv()
            try:
                for client in clients:
                    if client.index in wanted:
                        pipe.send(("result", (client.index, task(client, federation, tell))))
                pipe.send(("idle", process_time()))
            except GONE:
                return
            except Exception as error:
                pipe.send(("error", (error if isinstance(error, FedQHDError) else None, traceback.format_exc())))


class _Worker(NamedTuple):
    process: Any
    pipe: Connection
    clients: tuple[int, ...]

    def fate(self) -> str:
        """Describe how the worker ended and which clients it held."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f"by signal {-code}" if code and code < 0 else f"with exit code {code}"
        return f"the worker process of clients {', '.join(map(str, self.clients))} ended {how}"


def assign_clients(clients: Sequence[LocalClient], workers: int) -> list[list[LocalClient]]:
    """Distribute clients over workers so that all have about the same load.

    With different encoders, a step of one client may cost several times a step of another. The most expensive clients
    are assigned first, each to the worker with the least load so far.

    Returns:
        The clients of each worker, in client order.
    """
    shares: list[list[LocalClient]] = [[] for _ in range(workers)]
    load = [0] * workers
    cost = {c.index: STEP + sum(v.size for v in c.agent.params().values()) for c in clients}
    for client in sorted(clients, key=lambda c: (-cost[c.index], c.index)):
        k = load.index(min(load))
        shares[k].append(client)
        load[k] += cost[client.index]
    return [sorted(share, key=lambda c: c.index) for share in shares]


class ProcessEngine(Reachable):
    """Plays the clients in worker processes, with bit-identical results to `LocalEngine`."""

    def __init__(
        self,
        clients: Sequence[LocalClient],
        federation: Federation,
        on_episode: Tell = ignore,
        workers: int | None = None,
        measure: Measure = measure_nothing,
    ) -> None:
        """Fork the workers, each with its own copies of its clients.

        Args:
            clients: The clients, in any order. The caller's objects do not change when their copies learn.
            federation: What they report and install.
            on_episode: Called in this process after each training episode.
            workers: The number of processes; by default one per core, and never more than there are clients.
            measure: Evaluates a client during training; it must be picklable.

        Raises:
            FedQHDError: If this process is a daemon, which may not start others.
        """
        if multiprocessing.current_process().daemon:
            raise FedQHDError(
                "engine='process' is not possible in a daemonic process, such as a worker of multiprocessing.Pool: "
                "choose engine='local'"
            )
        self.on_episode = on_episode
        self.measure = measure
        self._workers: list[_Worker] = []
        self._cpu: dict[int, float] = {}
        fork = multiprocessing.get_context("fork")
        ours: list[Connection] = []
        for share in assign_clients(clients, min(workers or cores(), len(clients))):
            our_end, worker_end = fork.Pipe()
            ours.append(our_end)
            process = fork.Process(target=_work, args=(share, federation, worker_end, [*ours]), daemon=True)
            with warnings.catch_warnings():
                # Python warns about forking a process with threads. Those of BLAS hold no lock at this point, and the
                # worker creates its own.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            worker_end.close()
            self._workers.append(_Worker(process, our_end, tuple(c.index for c in share)))

    def round(self, teacher: Payload | None, quota: Quota, clients: Sequence[int] | None = None) -> list[Reply]:
        return self._do(partial(_round, teacher, quota), clients)

    def finish(self, teacher: Payload) -> None:
        self._do(partial(_install, teacher))

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        return dict(self._do(partial(_trial, teacher, self.measure, trial)))

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """Return f(client) for every client, computed in its worker; f and its results must be picklable."""
        return self._do(partial(_apply, f))

    def cpu_seconds(self) -> float:
        return process_time() + sum(self._cpu.values())

    def _do(self, task: Task, clients: Sequence[int] | None = None) -> list[Any]:
        """Run a task on the given clients, or on all, and return the results in client order."""
        results: dict[int, Any] = {}
        busy = {}
        for worker in self._workers:
            wanted = set(worker.clients if clients is None else clients)
            if wanted.intersection(worker.clients):
                self._send(worker, (task, wanted))
                busy[worker.pipe] = worker
        while busy:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                kind, value = self._receive(worker)
                if kind == "episode":
                    self.on_episode(value)
                elif kind == "result":
                    results[value[0]] = value[1]
                elif kind == "idle":
                    self._cpu[worker.clients[0]] = value
                    del busy[worker.pipe]
                else:
                    error, trace = value
                    raise error or RuntimeError(f"in a worker process:\n{trace}")
        return [results[i] for i in sorted(results)]

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            worker.pipe.send(message)
        except GONE as error:
            raise FedQHDError(worker.fate()) from error

    def _receive(self, worker: _Worker) -> tuple[str, Any]:
        try:
            return worker.pipe.recv()
        except GONE as error:
            raise FedQHDError(worker.fate()) from error

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(PATIENCE)
        self._workers.clear()
