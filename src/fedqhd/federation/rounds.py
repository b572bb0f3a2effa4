"""The one loop that every method and every engine shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Engine, Federation, Payload, Reply
from fedqhd.federation.fedqhd import AnchorCompile
from fedqhd.federation.server import Server


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
) -> Iterator[tuple[int, list[Reply], Payload]]:
    """Yields each round with all that was played in it and the teacher that came of it."""
    server = server or Server()
    if teacher is not None and isinstance(federation, AnchorCompile):
        federation.resume(teacher)
    for k in range(start, len(rounds)):
        played, valid = play_round(engine, federation, server, k, rounds[k], teacher)
        began = perf_counter()
        teacher = federation.aggregate(server.believed(k, valid, federation.expects()))
        server.seconds += perf_counter() - began
        yield k, played, teacher
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
        valid = server.admit(k, attempt, replies, federation.expects())
        server.seconds += perf_counter() - began
        if len(valid) >= server.min_clients:
            return played, valid
        server.counts["repeated"] += attempt + 1 < server.attempts
    raise FedQHDError(
        f"round {k}: of {len(replies)} replies {len(valid)} count and min_clients={server.min_clients} are needed; "
        f"{len(server.pending)} are late, and the log says why others were refused"
    )
