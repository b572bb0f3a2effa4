"""All clients in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import TypeVar

from fedqhd.client import LocalClient, ignore
from fedqhd.interfaces import Episode, Federation, Payload, Reply

T = TypeVar("T")


class LocalEngine:
    def __init__(
        self,
        clients: Sequence[LocalClient],
        federation: Federation,
        on_episode: Callable[[Episode], None] = ignore,
    ) -> None:
        self.clients = sorted(clients, key=lambda c: c.index)
        self.federation = federation
        self.on_episode = on_episode

    def round(self, teacher: Payload | None, episodes: int, clients: Sequence[int] | None = None) -> list[Reply]:
        taking_part = [c for c in self.clients if clients is None or c.index in clients]
        return [c.round(self.federation, teacher, episodes, self.on_episode) for c in taking_part]

    def finish(self, teacher: Payload) -> None:
        for client in self.clients:
            self.federation.install(client, teacher)

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        return [f(client) for client in self.clients]

    def cpu_seconds(self) -> float:
        return process_time()

    def close(self) -> None:
        for client in self.clients:
            for env in client.envs:
                env.close()
