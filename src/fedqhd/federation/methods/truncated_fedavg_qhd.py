"""Truncated FedAvg-QHD: readouts cut to the rows that all clients have, averaged, and padded with zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedqhd.core.config import Config
from fedqhd.core.protocols import Client, Federation, Like, Payload, Reply
from fedqhd.envs.public import Public
from fedqhd.federation.aggregate import combine_of, weighted_mean
from fedqhd.federation.fedqhd import Combine
from fedqhd.federation.method import Method, Style
from fedqhd.federation.terms import Terms


class Truncated:
    """W_i cut to the D_min rows that all clients have, averaged, and padded with zeros.

    With one encoder for all this is Algorithm 1. With different ones, rows that are added up mean different things.
    """

    def __init__(self, like: Payload, combine: Combine = weighted_mean) -> None:
        """The client with the fewest rows says how many all have."""
        self.like, self.combine = like["W"], combine
        self.D_min = len(self.like)

    def report(self, client: Client) -> Payload:
        return {"W": client.agent.params()["W"][: self.D_min]}

    def expects(self) -> Mapping[str, Like] | None:
        return {"W": Like(self.like.shape, self.like.dtype.kind)}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        return {"W": self.combine(replies, "W")}

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
        return Truncated(terms.like, combine_of(self.config.aggregate))

    @classmethod
    def other_exchange(cls, c: Config) -> dict[str, Any]:
        """A client that may have drawn a narrow encoder looks a little further."""
        return {"sigma": 1.25 * c.sigma} if c.setting == "heterogeneous" else super().other_exchange(c)
