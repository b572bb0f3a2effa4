"""What runs the clients: the protocol of engines, and the question that a trial asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fedqhd.core.protocols import Array, Payload, Quota, Reply


class Trial(NamedTuple):
    """A question to all clients: how well would you play if training ended now?"""

    episodes: int
    """The number of greedy episodes."""
    seed: int
    keep: bool
    """Whether each client also saves its model as the best one so far."""


class Engine(Protocol):
    """Runs the clients: in this process, in worker processes or through Flower. An error of a client is raised here."""

    def round(self, teacher: Payload | None, quota: Quota, clients: Sequence[int] | None = None) -> list[Reply]:
        """Let clients install the teacher, train and report.

        Args:
            teacher: The teacher, or None in the first round.
            quota: The episodes or steps that each client plays.
            clients: The clients that take part; None means all.

        Returns:
            The replies in the order of the clients.
        """
        ...

    def finish(self, teacher: Payload) -> None:
        """Install the last teacher in all clients."""
        ...

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        """Let all clients install the teacher, play greedy episodes and return to where they were.

        Returns:
            The returns by client, (environments of the client, episodes), without those that did not answer.
        """
        ...

    def each(self, f: Callable[[Any], Any]) -> list[Any]:
        """Return f(client) for every client, in their order, computed in the process of the client."""
        ...

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that run clients."""
        ...

    def state(self) -> Payload:
        """Return what is needed to resume the clients, named CLIENT/NAME; it is empty if they save their own state."""
        ...

    def restore(self, arrays: Payload) -> None:
        """Resume the clients from what `state` returned."""
        ...

    def close(self) -> None:
        """End the processes that the engine started."""
        ...
