"""What all clients of a federation are together, as far as it decides what they exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedqhd.core.protocols import Payload
from fedqhd.federation.validate import Participant


class Terms(NamedTuple):
    """What all clients are together, as far as it decides what they exchange."""

    alike: bool
    """Whether all encoders are the same, by their fingerprints."""
    like: Payload
    """What the parameters of the smallest client look like."""

    @classmethod
    def of(cls, members: Sequence[Participant]) -> Terms:
        smallest = min((m.like for m in members), key=lambda p: sum(v.size for v in p.values()))
        return cls(len({m.fingerprint for m in members}) == 1, smallest)
