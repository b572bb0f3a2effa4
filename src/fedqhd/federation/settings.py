"""The settings of participation and aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.length import each_round, whole_run
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.federation.aggregate import CANNOT_PLAY, MEAN, RULES

WEIGHTS = ("uniform", "steps", "precision")


def parse_presence(spec: str) -> tuple[int, tuple[int, int]]:
    """Parse `CLIENT=FIRST:LAST` into (client, (first, last)); without LAST, the client stays to the end.

    Raises:
        FedQHDError: If `spec` does not have this form.
    """
    client, _, span = spec.partition("=")
    first, colon, last = span.partition(":")
    numbers = (client, first, last or "0")
    if colon and all(x.isdecimal() and len(x) < 10 for x in numbers) and (not last or int(first) <= int(last)):
        return int(client), (int(first), int(last) if last else 10**9)
    raise FedQHDError(
        f"present={spec!r} is not a span of rounds: give CLIENT=FIRST:LAST, e.g. 3=10:20, or 3=10: for a client that "
        "stays to the end"
    )


@dataclass(frozen=True)
class ParticipationSettings(Settings):
    """Which clients take part in a round."""

    title: ClassVar[str] = "participation"

    participation: float = setting(1.0, "share of the clients that take part in a round", above=0, at_most=1)
    present: tuple[str, ...] = setting(
        (), "clients that join late or leave early, as CLIENT=FIRST:LAST rounds, e.g. 3=10:20 4=5:"
    )
    late: float = setting(0.0, "probability that a reply arrives a round late", at_least=0, at_most=1)
    late_weight: float = setting(0.5, "factor on the weight of a late reply; 0 drops it", at_least=0, at_most=1)
    min_clients: int = setting(1, "number of valid replies that a round needs")
    too_few: str = setting(
        "stop",
        "what to do with fewer valid replies than min_clients: end the run or repeat the round",
        choices=("stop", "repeat"),
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        most = max(1, round(c.participation * c.clients))
        need(c.min_clients <= most, "min_clients", f"only {most} of clients={c.clients} take part in a round")
        spans = dict(map(parse_presence, c.present))
        need(
            len(spans) == len(c.present) and max(spans, default=0) < c.clients,
            "present",
            f"give each of the clients 0 to {c.clients - 1} at most once",
        )
        rounds = range(-(-whole_run(c).amount // each_round(c).amount))
        if len(spans) == c.clients:
            empty = next((k for k in rounds if not any(lo <= k <= hi for lo, hi in spans.values())), None)
            need(empty is None, "present", f"no client is present in round {empty}")


@dataclass(frozen=True)
class AggregationSettings(Settings):
    """How the server weights and combines replies."""

    title: ClassVar[str] = "aggregation"

    weights: str | tuple[float, ...] = setting(
        "uniform", "weights of the clients in the aggregate: uniform, steps, precision, or one number per client"
    )
    aggregate: str = setting("auto", "how the server combines replies, or module:rule", choices=RULES, custom=True)
    max_magnitude: float = setting(1e9, "the server refuses a reply with a larger number", above=0)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        can_play = c.get("anchor_source") == "teacher"
        need(can_play or not RULES.get(c.aggregate, MEAN).plays, "aggregate", CANNOT_PLAY)
        if isinstance(c.weights, str):
            need(c.weights in WEIGHTS, "weights", "choose uniform, steps, precision, or give one number per client")
            return
        total = sum(c.weights)
        need(len(c.weights) == c.clients, "weights", f"give one number per client, {c.clients} in all")
        proper = min(c.weights) >= 0 and abs(total - 1) <= 1e-6
        need(proper, "weights", f"they must be at least 0 and sum to 1, not {total:g}")
