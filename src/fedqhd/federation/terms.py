"""What the server knows of the clients as a group, as far as it decides what they exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from fedqhd.core.protocols import Payload
from fedqhd.federation.validate import Participant


class Terms(NamedTuple):
    """What the server knows of the clients as a group, as far as it decides what they exchange."""

    same_encoder: bool
    """Whether all clients have the same encoder, as their fingerprints show."""
    like: Payload
    """Arrays with the shapes and types of the parameters of the smallest client."""

    @classmethod
    def of(cls, members: Sequence[Participant]) -> Terms:
        """Return the terms of these clients, of which there must be at least one."""
        smallest = min((m.like for m in members), key=lambda p: sum(v.size for v in p.values()))
        return cls(len({m.fingerprint for m in members}) == 1, smallest)


def shapes(like: Payload) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type and shape of each array."""
    return {name: (v.dtype.str, v.shape) for name, v in like.items()}


def misfits(members: Mapping[int, Participant], one_encoder: bool, least_rows: int = 0) -> dict[int, str]:
    """Find the clients whose introductions contradict those of the others or the settings of the server.

    What they say decides what all clients exchange, so that one of them could get the replies of all others refused.
    Where clients disagree, most of them are right and, if there are as many on both sides, those of the client with
    the lowest number.

    Args:
        members: What each client says of itself.
        one_encoder: Whether the method needs the same encoder, or networks of the same shape, at all clients.
        least_rows: The fewest rows that the W of a client may have.

    Returns:
        Why each of these clients does not fit, by client.
    """
    found: dict[int, str] = {}
    for fingerprint in sorted({m.fingerprint for m in members.values()}):
        alike = {i: m for i, m in members.items() if m.fingerprint == fingerprint}
        for i in outvoted({i: tuple(sorted(shapes(m.like).items())) for i, m in alike.items()}):
            found[i] = "it has parameters of other shapes than the clients with the same fingerprint"
    columns = {i: m.like["W"].shape[1:] for i, m in members.items() if m.like.keys() == {"W"}}
    for i in outvoted(columns):
        found[i] = f"its W has the columns {columns[i]}, unlike that of the other clients"
    for i, m in members.items():
        rows = m.like["W"].shape[:1] if "W" in m.like else ()
        if least_rows and rows < (least_rows,):
            found[i] = (
                f"its W has {sum(rows)} rows, fewer than the smallest of the server's dims, {least_rows}, and "
                "would cut off the rows of all others"
            )
    if one_encoder:
        for i in outvoted({i: m.fingerprint for i, m in members.items()}):
            found[i] = f"its fingerprint {members[i].fingerprint} is not that of the others, but all need one encoder"
    return dict(sorted(found.items()))


def outvoted(values: Mapping[int, Hashable]) -> list[int]:
    """Return the clients whose value is not the most common one; of equally common ones, the first client's counts."""
    if not values:
        return []
    ((winner, _),) = Counter(values[i] for i in sorted(values)).most_common(1)
    return [i for i, value in values.items() if value != winner]
