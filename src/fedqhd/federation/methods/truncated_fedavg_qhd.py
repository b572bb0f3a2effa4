"""Truncated FedAvg-QHD: readouts cut to the rows that all clients have, averaged, and padded with zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedqhd.core.config import Config
from fedqhd.core.protocols import Client, Expected, Federation, Payload, Reply
from fedqhd.envs.public import Public
from fedqhd.federation.aggregate import Combine, weighted_mean
from fedqhd.federation.method import Method, Style
from fedqhd.federation.terms import Terms


@dataclass(frozen=True, eq=False)
class Truncated:
    """W_i cut to the D_min rows that all clients have, averaged, and padded with zeros.

    With one encoder for all this is Algorithm 1. With different ones, rows that are added up mean different things.
    """

    like: Payload
    """Arrays that look like the parameters of the client with the fewest rows, which says how many all have."""
    combine: Combine = weighted_mean

    @property
    def D_min(self) -> int:
        return len(self.like["W"])

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return {"W": client.agent.params()["W"][: self.D_min]}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        W = self.like["W"]
        return {"W": Expected(W.shape, W.dtype.kind)}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {"W": self.combine(replies, "W")}

    def install(self, client: Client, teacher: Payload) -> None:
        W = np.zeros_like(client.agent.params()["W"])
        W[: self.D_min] = teacher["W"]
        client.agent.load({"W": W})


class TruncatedFedAvgQHD(Method):
    """Parameter averaging of readouts, whatever their encoders are."""

    name: ClassVar[str] = "truncated-fedavg-qhd"
    style: ClassVar[Style] = Style("#e69f00", (1, 1), rank=2)

    @classmethod
    def source(cls, setting: str) -> tuple[str, str]:
        """With one encoder nothing is truncated: it is Algorithm 1, to the bit."""
        return ("fedqhd" if setting == "homogeneous" else cls.name), setting

    def federation(self, terms: Terms, public: Public) -> Federation:
        return Truncated(terms.like, self.rule.combine)

    @classmethod
    def other_exchange(cls, c: Config) -> dict[str, Any]:
        """A client that may have drawn a narrow encoder looks a little further."""
        return {"sigma": 1.25 * c.sigma} if c.setting == "heterogeneous" else super().other_exchange(c)
