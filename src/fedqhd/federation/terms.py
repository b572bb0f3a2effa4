"""What the server knows of the clients as a group, as far as it decides what they exchange."""

from __future__ import annotations

from collections.abc import Sequence
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
