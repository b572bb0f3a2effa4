"""The one loop that every method and every engine shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Engine, Federation, Payload, Reply
from fedqhd.federation.server import Server


class Round(NamedTuple):
    """What came of round k."""

    k: int
    replies: list[Reply]
    """All that was played in it, whether or not it counted."""
    teacher: Payload
    state: Payload
    """The federation's state on the server, with which the next round begins."""


def plan_rounds(episodes: int, round_episodes: int) -> list[int]:
    """Episodes of each round; the last may be shorter."""
    full, rest = divmod(episodes, round_episodes)
    return [round_episodes] * full + ([rest] if rest else [])


def run_rounds(
    engine: Engine,
    federation: Federation,
    rounds: Sequence[int],
    start: int = 0,
    teacher: Payload | None = None,
    server: Server | None = None,
    state: Payload | None = None,
) -> Iterator[Round]:
    """Play the rounds and yield each, then install the last teacher.

    `rounds` are the episodes of each round. A run that goes on gives the round to `start` with, and the teacher and the
    state of the round before.
    """
    server = server or Server()
    state = federation.start() if state is None else state
    for k in range(start, len(rounds)):
        played, valid = play_round(engine, federation, server, k, rounds[k], teacher)
        began = perf_counter()
        state, teacher = federation.aggregate(state, server.believed(k, valid, federation.expects(teacher)))
        server.seconds += perf_counter() - began
        yield Round(k, played, teacher, state)
    if teacher is not None:
        engine.finish(teacher)


def play_round(
    engine: Engine, federation: Federation, server: Server, k: int, episodes: int, teacher: Payload | None
) -> tuple[list[Reply], list[Reply]]:
    """(all replies, the valid ones); played again, by other clients, while too few are valid."""
    played: list[Reply] = []
    for attempt in range(server.attempts):
        replies = engine.round(teacher, episodes, server.invite(k, attempt))
        played += replies
        began = perf_counter()
        valid = server.admit(k, attempt, replies, federation.expects(teacher))
        server.seconds += perf_counter() - began
        if len(valid) >= server.min_clients:
            return played, valid
        server.counts["repeated"] += attempt + 1 < server.attempts
    raise FedQHDError(
        f"round {k}: of {len(replies)} replies {len(valid)} count and min_clients={server.min_clients} are needed; "
        f"{len(server.pending)} are late, and the log says why others were refused"
    )
