"""The local engine: all clients live in this process and take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any, TypeVar

from fedqhd.agents.client import LocalClient, Measure, ignore, measure_nothing
from fedqhd.core.engine import Trial
from fedqhd.core.protocols import Array, Episode, Federation, Payload, Quota, Reply, under

T = TypeVar("T")


def state_of(client: LocalClient) -> Payload:
    """Return the state of a client with its number before each name, as CLIENT/NAME."""
    return {f"{client.index}/{name}": v for name, v in client.state().items()}


def restore_from(arrays: Payload, client: LocalClient) -> None:
    """Restore a client from its arrays among those of all clients, which are named CLIENT/NAME."""
    client.restore(under(arrays, f"{client.index}/"))


class Reachable:
    """Adds `state` and `restore` to an engine that can call a function on each of its clients."""

    each: Callable[..., list[Any]]

    def state(self) -> Payload:
        return {name: v for state in self.each(state_of) for name, v in state.items()}

    def restore(self, arrays: Payload) -> None:
        self.each(partial(restore_from, arrays))


class LocalEngine(Reachable):
    """Plays the clients in this process, one after the other."""

    def __init__(
        self,
        clients: Sequence[LocalClient],
        federation: Federation,
        on_episode: Callable[[Episode], None] = ignore,
        measure: Measure = measure_nothing,
    ) -> None:
        """Take over the clients; `close` closes their environments.

        Args:
            clients: The clients, in any order.
            federation: What they report and install.
            on_episode: Called after each training episode.
            measure: Evaluates a client during training.
        """
        self.clients = sorted(clients, key=lambda c: c.index)
        self.federation = federation
        self.on_episode = on_episode
        self.measure = measure

    def round(self, teacher: Payload | None, quota: Quota, clients: Sequence[int] | None = None) -> list[Reply]:
        taking_part = [c for c in self.clients if clients is None or c.index in clients]
        return [c.round(self.federation, teacher, quota, self.on_episode) for c in taking_part]

    def finish(self, teacher: Payload) -> None:
        for client in self.clients:
            self.federation.install(client, teacher)

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        return {c.index: c.trial(self.federation, teacher, self.measure, trial) for c in self.clients}

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        return [f(client) for client in self.clients]

    def cpu_seconds(self) -> float:
        return process_time()

    def close(self) -> None:
        for client in self.clients:
            for env in client.envs:
                env.close()
