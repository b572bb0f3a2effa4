"""The one loop that every method and every engine shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedqhd.interfaces import Engine, Federation, Payload, Reply


def plan_rounds(episodes: int, round_episodes: int) -> list[int]:
    """Episodes of each round; the last may be shorter."""
    full, rest = divmod(episodes, round_episodes)
    return [round_episodes] * full + ([rest] if rest else [])


def run_rounds(
    engine: Engine, federation: Federation, rounds: Sequence[int], start: int = 0, teacher: Payload | None = None
) -> Iterator[tuple[int, list[Reply], Payload]]:
    for k in range(start, len(rounds)):
        replies = engine.round(teacher, rounds[k])
        teacher = federation.aggregate(replies)
        yield k, replies, teacher
    if teacher is not None:
        engine.finish(teacher)
