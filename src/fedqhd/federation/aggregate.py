"""The rule by which the server makes one payload of many replies.

A `Rule` says whose replies count and what is made of them. `rule_of` finds it by name, once for a run: the server asks
it whom to believe, and the federation combines by it.
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

Combine = Callable[[Sequence[Reply], str], Array]
"""(replies, name) -> what the server makes of the arrays of that name."""
Select = Callable[[Sequence[Array]], Array]
"""Arrays (N, ...) of N clients -> which of the clients count, (N,)."""


def stack(replies: Sequence[Reply], name: str) -> Array:
    """(N, ...) in client order and double precision."""
    if not replies:
        raise FedQHDError("no client replied: there is nothing to average")
    ordered = sorted(replies, key=lambda r: r.client)
    first = ordered[0]
    for reply in ordered:
        value = reply.payload[name]
        if value.shape != first.payload[name].shape:
            raise FedQHDError(
                f"client {reply.client} sent {name} of shape {value.shape}, client {first.client} of "
                f"{first.payload[name].shape}"
            )
        if not np.isfinite(value).all():
            raise FedQHDError(f"client {reply.client} sent a {name} that is not finite: its learning diverged")
    P = np.stack([r.payload[name] for r in ordered])
    return P.astype(np.result_type(P, np.float64))


def weighted_mean(replies: Sequence[Reply], name: str) -> Array:
    """sum_i pi_i P_i over the clients that replied, pi normalised over them.

    Summed in client order and double precision, since the bits of a sum depend on its order.
    """
    P = stack(replies, name)
    total = float(sum(r.weight for r in replies))
    if not (np.isfinite(total) and total > 0 and all(r.weight >= 0 for r in replies)):
        raise FedQHDError(f"the clients' weights {[r.weight for r in replies]} must be at least 0, and not all 0")
    mean = np.zeros(P.shape[1:], P.dtype)
    for row, reply in zip(P, sorted(replies, key=lambda r: r.client), strict=True):
        mean += reply.weight / total * row
    return mean.astype(replies[0].payload[name].dtype)


def by_rows(rule: Callable[[Array], Array]) -> Combine:
    """A rule on real rows (N, d) -> (d,) as one on replies. One client, one vote: weights are only claimed."""

    def combine(replies: Sequence[Reply], name: str) -> Array:
        P = stack([r for r in replies if r.weight > 0] or replies, name)
        return rule(real_rows(P)).view(P.dtype).reshape(P.shape[1:]).astype(replies[0].payload[name].dtype)

    return combine


def own_combine(name: str) -> Combine:
    """What a user's own function `module:name` of the clients' rows (N, d), which gives (d,), makes of replies."""
    rule = named.load(name, "aggregate")
    if not callable(rule):
        raise FedQHDError(f"aggregate={name!r} is a {type(rule).__name__}: a function of rows (N, d) is needed")

    def checked(P: Array) -> Array:
        made = np.asarray(rule(P.copy()))
        if made.shape != P.shape[1:] or made.dtype.kind not in "iuf" or not np.isfinite(made).all():
            raise FedQHDError(
                f"aggregate={name!r} makes {made.dtype} of shape {made.shape} of rows {P.shape}: finite numbers of "
                f"shape {P.shape[1:]} are needed"
            )
        return made.astype(np.float64)

    return by_rows(checked)


class Rule(NamedTuple):
    """Whose replies count, and what is made of those that do."""

    name: str
    combine: Combine = weighted_mean
    select: Select | None = None
    """None: all count."""

    def counting(self, replies: Sequence[Reply], expects: Mapping[str, Expected] | None) -> list[bool]:
        """Whether each of the replies counts, judged by the arrays that clients vote on."""
        names = [n for n in replies[0].payload if expects is None or expects[n].votes]
        if self.select is None or not names:
            return [True] * len(replies)
        return [bool(kept) for kept in self.select([stack(replies, name) for name in names])]


MEAN = Rule("mean")
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("auto", select=near_the_centre),
        MEAN,
        Rule("median", by_rows(median)),
        Rule("trimmed-mean", by_rows(trimmed_mean)),
        Rule("geometric-median", by_rows(geometric_median)),
        Rule("multi-krum", select=multi_krum),
    )
}


def rule_of(name: str) -> Rule:
    """The rule of this name; `module:function` is one of the user's own."""
    if ":" in name:
        return Rule(name, own_combine(name))
    if name not in RULES:
        raise FedQHDError(
            f"aggregate={name!r} is unknown{nearest(name, RULES)}: choose from {', '.join(RULES)} or give module:name"
        )
    return RULES[name]
