"""Who takes part in a round, and what the server makes of their replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.federation.aggregate import RULES

WEIGHTS = ("uniform", "steps", "precision")


def parse_presence(spec: str) -> tuple[int, tuple[int, int]]:
    """(client, (first, last)) of `client=first:last`; without a last round it stays."""
    client, _, span = spec.partition("=")
    first, colon, last = span.partition(":")
    numbers = (client, first, last or "0")
    if colon and all(x.isdecimal() and len(x) < 10 for x in numbers) and (not last or int(first) <= int(last)):
        return int(client), (int(first), int(last) if last else 10**9)
    raise FedQHDError(f"present={spec!r} is no span of rounds: give CLIENT=FIRST:LAST, e.g. 3=10:20, or 3=10: to stay")


@dataclass(frozen=True)
class ParticipationSettings(Settings):
    """Which clients take part in a round."""

    title: ClassVar[str] = "participation"

    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, at_most=1)
    present: tuple[str, ...] = setting(
        (), "clients that join late or leave: CLIENT=FIRST:LAST rounds, e.g. 3=10:20 4=5:"
    )
    late: float = setting(0.0, "chance that a reply comes a round late", at_least=0, at_most=1)
    late_weight: float = setting(0.5, "factor on the weight of a late reply; 0 drops it", at_least=0, at_most=1)
    min_clients: int = setting(1, "valid replies that a round needs")
    too_few: str = setting(
        "stop", "fewer than min_clients: end the run, or play the round again", choices=("stop", "repeat")
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        most = max(1, round(c.participation * c.clients))
        need(c.min_clients <= most, "min_clients", f"of clients={c.clients} only {most} take part in a round")
        spans = dict(map(parse_presence, c.present))
        need(
            len(spans) == len(c.present) and max(spans, default=0) < c.clients,
            "present",
            f"give each of the clients 0 to {c.clients - 1} once at most",
        )
        rounds = range(-(-c.episodes // c.round_episodes))
        if len(spans) == c.clients:
            empty = next((k for k in rounds if not any(lo <= k <= hi for lo, hi in spans.values())), None)
            need(empty is None, "present", f"no client is there in round {empty}")


@dataclass(frozen=True)
class AggregationSettings(Settings):
    """What the server makes of the replies."""

    title: ClassVar[str] = "aggregation"

    weights: str | tuple[float, ...] = setting(
        "uniform", "federation weights: uniform, steps, precision, or one number a client"
    )
    aggregate: str = setting("auto", "what the server makes of the replies, or module:rule", choices=RULES, custom=True)
    max_magnitude: float = setting(1e9, "a reply with a larger number is refused", above=0)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        if isinstance(c.weights, str):
            need(c.weights in WEIGHTS, "weights", "choose uniform, steps, precision, or give one number a client")
            return
        total = sum(c.weights)
        need(len(c.weights) == c.clients, "weights", f"give one number a client, {c.clients} in all")
        proper = min(c.weights) >= 0 and abs(total - 1) <= 1e-6
        need(proper, "weights", f"they must be >= 0 and sum to 1, not {total:g}")
