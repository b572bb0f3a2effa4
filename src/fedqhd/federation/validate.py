"""The checks that a reply must pass before it counts. The server trusts nothing in a reply, not even its types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Expected, Federation, Payload, Reply, weight_due
from fedqhd.linalg.grams import are_sums_of_squares


class Participant(NamedTuple):
    """What the server knows of a client from the start. Of its model, these are only the fingerprint and the shapes."""

    fingerprint: str
    weight: float | None = 1.0
    """The client's share in the aggregate, which the server sets; None stands for the steps it took in the round."""
    like: Payload = MappingProxyType({})
    """Arrays with the shapes and types of its parameters; their numbers mean nothing."""


class Refused(Exception):
    """Raised when a reply does not count. `kind` is the word that it is counted by, the message is logged."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


def need(ok: bool, kind: str, sentence: str) -> None:
    """Raise `Refused(kind, sentence)` unless `ok`."""
    if not ok:
        raise Refused(kind, sentence)


def number(x: Any) -> bool:
    """Tell whether `x` is a finite real number; booleans are not."""
    return isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool) and math.isfinite(x)


def check_reply(
    reply: Reply, members: Sequence[Participant] | None, expects: Mapping[str, Expected] | None, magnitude: float
) -> None:
    """Raise `Refused` unless the reply can be used as it is.

    Args:
        reply: The reply, whose fields may hold anything.
        members: What the server knows of each client; None skips the checks of fingerprint and weight.
        expects: The format of the payload; None accepts all real or complex arrays.
        magnitude: The largest absolute value that an array may hold.
    """
    client, weight = reply.client, reply.weight
    need(
        isinstance(client, int | np.integer) and not isinstance(client, bool),
        "client", f"{client!r:.40} is not a client number",
    )  # fmt: skip
    need(number(weight) and weight >= 0, "weight", f"its weight is {weight!r:.40}, but must be a number of at least 0")
    if members is not None:
        need(0 <= client < len(members), "client", f"there are only clients 0 to {len(members) - 1}")
        member = members[client]
        need(
            isinstance(reply.fingerprint, str) and reply.fingerprint == member.fingerprint, "fingerprint",
            f"its fingerprint is {reply.fingerprint!r:.40}, but it began with {member.fingerprint!r:.40}",
        )  # fmt: skip
        due = weight_due(member.weight, reply.steps)
        need(number(due) and weight == due, "weight", f"its weight is {weight!r:.40}, but should be {due!r:.40}")
    need(isinstance(reply.payload, Mapping), "names", f"it sent a {type(reply.payload).__name__}, not named arrays")
    names = set(reply.payload) if expects is None else set(expects)
    need(
        set(reply.payload) == names, "names",
        f"it sent {sorted(map(str, reply.payload))!r:.80}, but {sorted(map(str, names))} is expected",
    )  # fmt: skip
    for name in reply.payload:
        check_array(name, reply.payload[name], None if expects is None else expects[name], magnitude)


def check_array(name: str, value: Any, expected: Expected | None, magnitude: float) -> None:
    """Raise `Refused` unless `value` is a finite array of the expected type and shape, bounded by `magnitude`."""
    need(isinstance(value, np.ndarray), "type", f"its {name} is a {type(value).__name__}, not an array")
    kinds, dtype = "fc" if expected is None else expected.kind, value.dtype
    need(
        dtype.kind in kinds and dtype.isnative and dtype.itemsize <= (16 if dtype.kind == "c" else 8),
        "type", f"its {name} is of type {value.dtype}, not {'complex' if kinds == 'c' else 'real'} numbers",
    )  # fmt: skip
    if expected is not None:
        fits = len(value.shape) == len(expected.shape) and all(
            k is None or k == n for k, n in zip(expected.shape, value.shape, strict=True)
        )
        need(fits, "shape", f"its {name} is of shape {value.shape}, but {expected.shape} is expected")
    # The minimum and the maximum are finite exactly when all numbers are.
    parts = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
    for part in parts if value.size else ():
        low, high = float(part.min()), float(part.max())
        need(math.isfinite(low) and math.isfinite(high), "not finite", f"its {name} is not finite: did it diverge?")
        need(
            max(-low, high) <= magnitude, "magnitude",
            f"its {name} goes up to {max(-low, high):.3g}, beyond max_magnitude={magnitude:g}",
        )  # fmt: skip
        if expected is not None:
            need(low >= expected.least, "range", f"its {name} goes down to {low:.3g}, below {expected.least:g}")
    if expected is not None and expected.gram:
        square = are_sums_of_squares(value)
        need(square, "range", f"its {name} is not a sum of squares: symmetric and without negative eigenvalues")


@runtime_checkable
class Describes(Protocol):
    """A federation that can tell what its teachers look like, as all of ours can."""

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        """Return what the arrays of a teacher look like.

        Args:
            teacher: A teacher of finite numbers, whose arrays may be missing or of any shape.
        """
        ...


def check_teacher(federation: Federation, teacher: Payload) -> None:
    """Raise FedQHDError unless a client can install this teacher: finite arrays, as the federation describes them.

    Args:
        federation: What is exchanged, without wrappers.
        teacher: The teacher as the server sent it.
    """
    try:
        for name, value in teacher.items():
            check_array(name, value, Expected((None,) * value.ndim, "fciub"), math.inf)
        described = federation.teaches(teacher) if isinstance(federation, Describes) else {}
        for name, expected in described.items():
            need(name in teacher, "names", f"it lacks {name}")
            check_array(name, teacher[name], expected, math.inf)
    except Refused as why:
        raise FedQHDError(f"the server's teacher cannot be installed: {why}") from None
