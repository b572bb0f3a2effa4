"""The training loop that all methods and engines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from fedqhd.core.engine import Engine
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Federation, Payload, Quota, Reply
from fedqhd.federation.server import Server


class Round(NamedTuple):
    """The result of round k."""

    k: int
    replies: list[Reply]
    """All replies of the round whose records can be stored, whether or not they counted."""
    teacher: Payload
    state: Payload
    """The federation's state on the server at the start of the next round."""


def run_rounds(
    engine: Engine,
    federation: Federation,
    rounds: Sequence[Quota],
    start: int = 0,
    teacher: Payload | None = None,
    server: Server | None = None,
    state: Payload | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Round]:
    """Play the rounds and yield the result of each, then install the last teacher.

    Args:
        engine: Where the clients live.
        federation: What clients and server exchange.
        rounds: What each client plays in each round.
        start: The first round to play; above 0 if a run resumes.
        teacher: The teacher of the round before `start`, or None at the beginning.
        server: Invites clients and checks replies; by default, all clients take part and all valid replies count.
        state: The federation's state after the round before `start`, or None at the beginning.
        stopped: Tells, after each round, whether to play no further ones.

    Raises:
        FedQHDError: If a round has fewer valid replies than the server needs.
    """
    server = server or Server()
    state = federation.start() if state is None else state
    # A round is played at most `attempts` times, which limits how much a client has played before.
    before = server.attempts * sum(map(server.most, rounds[:start]))
    for k in range(start, len(rounds)):
        played, valid = play_round(engine, federation, server, k, rounds[k], teacher, before)
        before += server.attempts * server.most(rounds[k])
        began = perf_counter()
        state, teacher = server.aggregate(k, federation, state, teacher, valid)
        server.seconds += perf_counter() - began
        yield Round(k, played, teacher, state)
        if stopped():
            break
    if teacher is not None:
        engine.finish(teacher)


def play_round(
    engine: Engine,
    federation: Federation,
    server: Server,
    k: int,
    quota: Quota,
    teacher: Payload | None,
    before: int,
) -> tuple[list[Reply], list[Reply]]:
    """Play round k, and repeat it with newly drawn clients while too few replies are valid.

    Args:
        engine: Where the clients live.
        federation: What clients and server exchange.
        server: Invites clients and checks replies.
        k: The round.
        quota: What each client plays in the round.
        teacher: The teacher of the round before, or None at the beginning.
        before: The largest number of episodes, or of steps, that a client can have played in the rounds before.

    Returns:
        All replies of all attempts whose records can be stored, and the valid replies of the last attempt.

    Raises:
        FedQHDError: If there are too few valid replies after `server.attempts` attempts.
    """
    played: list[Reply] = []
    for attempt in range(server.attempts):
        replies = engine.round(teacher, quota, server.invite(k, attempt))
        began = perf_counter()
        recorded = server.recorded(k, replies, quota, before + attempt * server.most(quota))
        played += recorded
        valid = server.admit(k, attempt, recorded, federation.expects(teacher))
        server.seconds += perf_counter() - began
        if len(valid) >= server.min_clients:
            return played, valid
        server.counts["repeated"] += attempt + 1 < server.attempts
    raise FedQHDError(
        f"round {k}: {len(valid)} of {len(replies)} replies count, but min_clients={server.min_clients} are needed; "
        f"{len(server.pending)} are late, and the log says why others were refused"
    )
