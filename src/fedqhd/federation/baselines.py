"""The methods FedQHD is compared with; each is one idea over the classes of fedqhd.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedqhd.core.protocols import Client, Expected, Payload, Reply
from fedqhd.federation.aggregate import Combine, weighted_mean
from fedqhd.federation.fedqhd import AnchorCompile


@dataclass(frozen=True, eq=False)
class Independent:
    """No federation: nothing is sent, nothing installed. The target is synced as at every round boundary."""

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return {}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return {}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.sync_target()


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


@dataclass(frozen=True, eq=False)
class Distilled(AnchorCompile):
    """The teacher is the mean of softened choices, p = sum_i pi_i softmax(Q_i / T) on the anchors; each client
    takes gradient steps on KL(p || softmax(Q / T))."""

    temperature: float = field(default=1.0, kw_only=True)

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        z = client.agent.q(self.anchors) / self.temperature
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return {"p": e / e.sum(axis=1, keepdims=True)}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return {"p": Expected((len(self.anchors), self.actions), "f", least=0.0)}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {"p": self.combine(replies, "p")}

    def install(self, client: Client, teacher: Payload) -> None:
        # softmax(T log p / T) = p: as values, the teacher is T log p.
        client.agent.fit_anchors(self.anchors, self.temperature * np.log(np.maximum(teacher["p"], 1e-30)))
