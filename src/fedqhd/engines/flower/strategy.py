"""FedQHD as a Flower strategy, for users who have their own ServerApp and let Flower run the rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedqhd.core.protocols import Federation, Payload, Quota, Reply
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.records import array_record
from fedqhd.federation import Server


class FedQHD(Strategy):
    """Each round of Flower is one round of FedQHD: `start(grid, ArrayRecord(), num_rounds=len(rounds))`.

    As with every engine, `Server` and `Federation` make all decisions, and the engine's patience limits a round. The
    engine also sends the messages, so that Flower's loop has none to send: the loop would go by what an answer says it
    answers, and a client could answer in the name of another.
    """

    def __init__(self, engine: FlowerEngine, federation: Federation, server: Server, rounds: Sequence[Quota]) -> None:
        """Make a strategy.

        Args:
            engine: The engine on the grid; `gather` must have been called.
            federation: What clients and server exchange.
            server: Invites clients and checks replies.
            rounds: What each client plays in each round.
        """
        self.engine, self.federation, self.server, self.rounds = engine, federation, server, rounds
        self._replies: list[Reply] = []
        self._state = federation.start()
        self._teacher: Payload | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the clients train, and return no messages."""
        k = server_round - 1
        self._replies = self.engine.round(self._teacher, self.rounds[k], self.server.invite(k))
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        k = server_round - 1
        expects = self.federation.expects(self._teacher)
        valid = self.server.admit(k, 0, self._replies, expects)
        if len(valid) < max(1, self.server.min_clients):
            return None, None
        self._state, self._teacher = self.server.aggregate(k, self.federation, self._state, self._teacher, valid)
        returns = [episode.ret for reply in self._replies for episode in reply.episodes]
        earned = {"return": sum(returns) / len(returns)} if returns else {}  # in a round of steps, none may have ended
        return array_record(self._teacher), MetricRecord({**earned, "clients": len(self.server.used_weights)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """After the last round, have the clients install the last teacher; return no messages."""
        if server_round == len(self.rounds) and self._teacher is not None:
            self.engine.finish(self._teacher)
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def summary(self) -> None: ...
