"""Flower's simulation of many nodes on one machine, which runs on Ray, as an engine."""

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
from fedqhd.engines.flower.client import KEPT_STATES
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.process import cores
from fedqhd.envs.make import repeat_of

T = TypeVar("T")
START = 300.0
"""Seconds that Ray has to start."""
STOP = 30.0
"""Seconds that Ray has to stop."""


class Simulation:
    """Nodes in Ray processes, one per core.

    Flower runs a ServerApp in a thread. That app only hands over its grid and waits until `stop` is called.
    """

    def __init__(self, app: ClientApp, nodes: int) -> None:
        """Start the simulation and wait for its `grid`.

        Raises:
            FedQHDError: If it does not start.
        """
        # Users do not need Flower's log, and its errors reach us as exceptions and messages.
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        grids: Queue[Grid] = Queue()
        self._done = threading.Event()
        self._error: BaseException | None = None
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            grids.put(grid)
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
                self.grid = grids.get(timeout=1.0)
                return
            if not self._thread.is_alive():
                break
        raise FedQHDError(f"engine='flower' could not start its simulation: {self._error or 'Ray did not answer'}")

    def stop(self) -> None:
        """End the simulation."""
        self._done.set()
        self._thread.join(STOP)


def client_folder(folder: Path, client: int) -> Path:
    """Return the folder in which a simulated client keeps its state."""
    return folder / f"client-{client}"


class SimulationEngine(FlowerEngine):
    """Simulated nodes on this machine.

    They keep their states in folders, as real nodes do. Because the folders are on this machine, checkpoints and
    evaluation can read them.
    """

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
        """Make the engine and wait for its nodes.

        Args:
            grid: The grid of the simulation.
            clients: Untrained clients, as the nodes make them.
            folder: Where the nodes keep their states. It is emptied.
            run: The name of the run.
            world: The fingerprint of anchors, scaling and actions.
            stop: Called by `close`.
            **options: Further arguments of `FlowerEngine`.
        """
        super().__init__(grid, run, {}, world, **options)
        self.clients, self.folder, self.stop = clients, folder, stop
        self.sites = max(len(client.envs) for client in clients)
        self.repeat = max(repeat_of(env) for client in clients for env in client.envs)
        shutil.rmtree(folder, ignore_errors=True)
        self.gather(len(clients), START)

    def refuse(self, why: Exception) -> None:
        """Raise an error, because a simulated node cannot be fixed while the run waits."""
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
            # The run may have begun on another engine, which does not count what it asks for.
            open_steps = len(own.get("actions", ())) * self.repeat
            self.asked = max(self.asked, int(own["episodes"]), open_steps)
            write_checkpoint(
                client_folder(self.folder, client.index), self.exchange, own, {"run": self.run}, KEPT_STATES
            )

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """Return f(client) for every client, restored to its current state and computed in this process."""
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
