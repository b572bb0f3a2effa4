"""Flower's simulation of many nodes on one machine, by Ray, as an engine like any other."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedqhd.agents.client import LocalClient
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_checkpoint, write_checkpoint
from fedqhd.core.protocols import Array, Payload, under
from fedqhd.engines.flower.client import KEPT
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.process import cores

T = TypeVar("T")
START = 300.0
"""Seconds that Ray has to start."""
STOP = 30.0
"""Seconds that it has to end."""


class Simulation:
    """Nodes in the processes of Ray, one a core. Flower calls a ServerApp; here it hands out its grid and waits."""

    def __init__(self, app: ClientApp, nodes: int) -> None:
        # Its narration is not the user's concern, and what goes wrong reaches us.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        handed: Queue[Grid] = Queue()
        self._done = threading.Event()
        self._error: BaseException | None = None
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            handed.put(grid)
            self._done.wait()

        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        init = {"num_cpus": min(cores(), nodes), **quiet}
        backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": init}

        def simulate() -> None:
            try:
                run_simulation(server, app, nodes, backend_config=backend)  # type: ignore[arg-type]
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=simulate, daemon=True)
        self._thread.start()
        for _ in range(int(START)):
            with suppress(Empty):
                self.grid = handed.get(timeout=1.0)
                return
            if not self._thread.is_alive():
                break
        raise FedQHDError(f"engine='flower' could not start its simulation: {self._error or 'Ray did not answer'}")

    def stop(self) -> None:
        self._done.set()
        self._thread.join(STOP)


def client_folder(folder: Path, client: int) -> Path:
    return folder / f"client-{client}"


class SimulationEngine(FlowerEngine):
    """Nodes on this machine. They keep themselves in folders here, as real ones do at home, which puts their states
    within reach: of the checkpoints of the run, and of whoever evaluates them."""

    def __init__(
        self,
        grid: Grid,
        clients: Sequence[LocalClient],
        folder: Path,
        run: str,
        world: str,
        stop: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        """`clients` as they were built, before they learned anything."""
        super().__init__(grid, run, {}, world, **options)
        self.clients, self.folder, self.stop = clients, folder, stop
        shutil.rmtree(folder, ignore_errors=True)
        self.gather(len(clients), START)

    def refuse(self, why: Exception) -> None:
        raise FedQHDError(f"a simulated client cannot be made: {why}") from why

    def state(self) -> Payload:
        states: dict[str, Array] = {}
        for client in self.clients:
            found = read_checkpoint(client_folder(self.folder, client.index))
            state = client.state() if found is None else found.arrays
            states |= {f"{client.index}/{name}": v for name, v in state.items()}
        return {**super().state(), **states}

    def restore(self, arrays: Payload) -> None:
        super().restore(arrays)
        for client in self.clients:
            own = under(arrays, f"{client.index}/")
            write_checkpoint(client_folder(self.folder, client.index), self.exchange, own, {"run": self.run}, KEPT)

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """f of every client as it is now, computed here."""
        for client in self.clients:
            found = read_checkpoint(client_folder(self.folder, client.index))
            if found is not None:
                client.restore(found.arrays)
        return [f(client) for client in self.clients]

    def close(self) -> None:
        self.stop()
        for client in self.clients:
            for env in client.envs:
                env.close()
        shutil.rmtree(self.folder, ignore_errors=True)
