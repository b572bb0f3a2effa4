"""Aggregation rules: how the server combines the replies of many clients into one payload.

A `Rule` decides which replies count and how they are combined. `rule_of` looks it up by name, once per run: the server
uses it to select replies, the federation to combine them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedqhd.core import named
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.protocols import Array, Expected, Reply
from fedqhd.federation.location import (
    geometric_median,
    median,
    multi_krum,
    near_the_centre,
    real_rows,
    trimmed_mean,
)
from fedqhd.federation.play import Level, Play, play_off

Combine = Callable[[Sequence[Reply], str], Array]
"""(replies, name) -> the aggregate of the arrays of that name."""
Select = Callable[[Sequence[Array]], Array]
"""Arrays (N, ...), each with one row per client -> a boolean mask (N,) of the clients that count."""


def stack(replies: Sequence[Reply], name: str) -> Array:
    """Stack the arrays of that name, (N, ...), in client order and double precision.

    Raises:
        FedQHDError: If there are no replies, if the shapes differ, or if an array is not finite.
    """
    if not replies:
        raise FedQHDError("no client replied: there is nothing to average")
    ordered = sorted(replies, key=lambda r: r.client)
    first = ordered[0]
    for reply in ordered:
        value = reply.payload[name]
        if value.shape != first.payload[name].shape:
            raise FedQHDError(
                f"client {reply.client} sent {name} of shape {value.shape}, but client {first.client} sent "
                f"{first.payload[name].shape}"
            )
        if not np.isfinite(value).all():
            raise FedQHDError(f"client {reply.client} sent a {name} that is not finite: its learning diverged")
    P = np.stack([r.payload[name] for r in ordered])
    return P.astype(np.result_type(P, np.float64))


def weighted_mean(replies: Sequence[Reply], name: str) -> Array:
    """Return sum_i pi_i P_i over the clients that replied, with the weights pi normalised over them.

    The sum is taken in client order and double precision, because its bits depend on the order.

    Raises:
        FedQHDError: If a weight is negative or all are 0, or if `stack` refuses the arrays.
    """
    P = stack(replies, name)
    total = float(sum(r.weight for r in replies))
    if not (np.isfinite(total) and total > 0 and all(r.weight >= 0 for r in replies)):
        raise FedQHDError(f"the clients' weights {[r.weight for r in replies]} must be at least 0 and not all 0")
    mean = np.zeros(P.shape[1:], P.dtype)
    for row, reply in zip(P, sorted(replies, key=lambda r: r.client), strict=True):
        mean += reply.weight / total * row
    return mean.astype(replies[0].payload[name].dtype)


def by_rows(rule: Callable[[Array], Array]) -> Combine:
    """Turn a rule on real rows, (N, d) -> (d,), into a rule on replies.

    Every client with a positive weight has one vote, because a weight is only what the client claims.
    """

    def combine(replies: Sequence[Reply], name: str) -> Array:
        P = stack([r for r in replies if r.weight > 0] or replies, name)
        return rule(real_rows(P)).view(P.dtype).reshape(P.shape[1:]).astype(replies[0].payload[name].dtype)

    return combine


def user_combine(name: str) -> Combine:
    """Load the user's own rule `module:name`, a function that maps the clients' rows (N, d) to one row (d,).

    What it returns is checked in every round.
    """
    rule = named.load(name, "aggregate")
    if not callable(rule):
        raise FedQHDError(f"aggregate={name!r} is a {type(rule).__name__}: it must be a function of rows (N, d)")

    def checked(P: Array) -> Array:
        try:
            combined = np.asarray(rule(P.copy()))
        except Exception as error:
            raise FedQHDError(
                f"aggregate={name!r} raised {error!r} for rows {P.shape}: it must return finite numbers of shape "
                f"{P.shape[1:]}"
            ) from error
        if combined.shape != P.shape[1:] or combined.dtype.kind not in "iuf" or not np.isfinite(combined).all():
            raise FedQHDError(
                f"aggregate={name!r} returned {combined.dtype} of shape {combined.shape} for rows {P.shape}: it must "
                f"return finite numbers of shape {P.shape[1:]}"
            )
        return combined.astype(np.float64)

    return by_rows(checked)


class Rule(NamedTuple):
    """Which replies count, and how those that count are combined."""

    name: str
    combine: Combine = weighted_mean
    select: Select | None = None
    """None means that all replies count."""
    reason: str = ""
    """Why a reply is left out, in words for the log."""
    plays: bool = False
    """Whether the server levels the replies and plays them, leaves out those that play clearly worse than the others or
    spoil the teacher, and takes back a teacher that plays clearly worse than the last one."""

    def counted(
        self,
        replies: Sequence[Reply],
        expects: Mapping[str, Expected] | None,
        play: Play | None = None,
    ) -> dict[int, Reply]:
        """Return the replies that count, as they count, by their place among all.

        Args:
            replies: Valid replies of one round, at least one, in client order.
            expects: The format of a reply. Only arrays with `votes` are compared; None compares all of them.
            play: How the server plays in this round; a rule with `plays` needs it.

        Raises:
            FedQHDError: If the rule plays replies and the server cannot.
        """
        if self.plays:
            if play is None:
                raise FedQHDError(f"aggregate={self.name} is not possible: {CANNOT_PLAY}")
            return played(replies, play)
        names = [n for n in replies[0].payload if expects is None or expects[n].votes]
        kept = np.ones(len(replies), bool)
        if self.select is not None and names:
            kept = self.select([stack(replies, name) for name in names])
        return {i: r for i, (r, counts) in enumerate(zip(replies, kept, strict=True)) if counts}

    def accepted(
        self,
        replies: Sequence[Reply],
        expects: Mapping[str, Expected] | None,
        play: Play | None = None,
    ) -> list[bool]:
        """Tell for each reply whether it counts; the arguments are those of `counted`."""
        counted = self.counted(replies, expects, play)
        return [i in counted for i in range(len(replies))]


def played(replies: Sequence[Reply], play: Play) -> dict[int, Reply]:
    """Return the replies that `play_off` keeps, levelled, by their place among all.

    Each has one vote, because a weight is only what the client claims.
    """
    voters = [i for i, r in enumerate(replies) if r.weight > 0] or list(range(len(replies)))
    level = Level.of(stack([replies[i] for i in voters], "Q"))
    kept = play_off(level, play)
    dtype = replies[0].payload["Q"].dtype
    values = zip(kept, level.counting(kept).astype(dtype), strict=True)
    return {voters[i]: replies[voters[i]]._replace(payload={"Q": Q}, weight=1.0) for i, Q in values}


MEAN = Rule("mean")
FAR = (
    "it is far from what most clients report, as that of a faulty or lying client would be; among few clients this "
    "also happens to honest ones, and aggregate=mean would count all"
)
POOR = "it plays clearly worse than others in the server's copy of the environment, or the teacher does because of it"
CANNOT_PLAY = (
    "the server plays each reply, so it needs values at anchors and its own copy of the environment: give "
    "setting=heterogeneous and anchor_source=teacher"
)
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("auto", select=near_the_centre, reason=FAR),
        MEAN,
        Rule("median", by_rows(median)),
        Rule("trimmed-mean", by_rows(trimmed_mean)),
        Rule("geometric-median", by_rows(geometric_median)),
        Rule("multi-krum", select=multi_krum, reason=FAR),
        Rule("played", reason=POOR, plays=True),
    )
}


def rule_of(name: str) -> Rule:
    """Return the rule with this name: one of `RULES`, or `module:function` for the user's own.

    Raises:
        FedQHDError: If the name is unknown or the user's function cannot be loaded.
    """
    if ":" in name:
        return Rule(name, user_combine(name))
    if name not in RULES:
        raise FedQHDError(
            f"aggregate={name!r} is unknown{nearest(name, RULES)}: choose from {', '.join(RULES)} or give module:name"
        )
    return RULES[name]
