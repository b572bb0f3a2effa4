"""Truncated FedAvg-QHD: readouts are cut to the rows that all clients have, averaged, and padded with zeros."""

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
    """The W_i are cut to the D_min rows that all clients have, averaged, and padded with zeros.

    With one encoder this is Algorithm 1. With different encoders, it adds up rows that belong to different features.
    """

    like: Payload
    """Arrays with the shapes and types of the parameters of the client with the fewest rows, D_min."""
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

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        return self.expects(teacher) or {}

    def install(self, client: Client, teacher: Payload) -> None:
        W = np.zeros_like(client.agent.params()["W"])
        W[: self.D_min] = teacher["W"]
        client.agent.load({"W": W})


class TruncatedFedAvgQHD(Method):
    """Parameter averaging of readouts, regardless of their encoders."""

    name: ClassVar[str] = "truncated-fedavg-qhd"
    style: ClassVar[Style] = Style("#e69f00", (1, 1), rank=2)

    @classmethod
    def source(cls, setting: str) -> tuple[str, str]:
        """With one encoder nothing is truncated, so the method is bit-identical to Algorithm 1."""
        return ("fedqhd" if setting == "homogeneous" else cls.name), setting

    @property
    def least_rows(self) -> int:
        """The smallest dimension of the settings: a client that claims less would cut off the rows of all others."""
        return int(min(self.config.dims))

    def federation(self, terms: Terms, public: Public) -> Federation:
        return Truncated(terms.like, self.rule.combine)

    @classmethod
    def tuning_variant(cls, c: Config) -> dict[str, Any]:
        """With different encoders, try a larger bandwidth, because some clients draw a narrow encoder."""
        return {"sigma": 1.25 * c.sigma} if c.setting == "heterogeneous" else super().tuning_variant(c)
