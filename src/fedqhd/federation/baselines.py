"""The methods FedQHD is compared with; each is one idea over the classes of fedqhd.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedqhd.core.protocols import Array, Client, Like, Payload, Reply
from fedqhd.federation.aggregate import weighted_mean
from fedqhd.federation.fedqhd import AnchorCompile, Combine


class Independent:
    """No federation: nothing is sent, nothing installed. The target is synced as at every round boundary."""

    def report(self, client: Client) -> Payload:
        return {}

    def expects(self) -> Mapping[str, Like] | None:
        return {}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        return {}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.sync_target()


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


class Distilled(AnchorCompile):
    """The teacher is the mean of softened choices, p = sum_i pi_i softmax(Q_i / T) on the anchors; each client
    takes gradient steps on KL(p || softmax(Q / T))."""

    def __init__(
        self, anchors: Array, temperature: float, actions: int | None = None, combine: Combine = weighted_mean
    ) -> None:
        super().__init__(anchors, actions, combine)
        self.temperature = temperature

    def report(self, client: Client) -> Payload:
        z = client.agent.q(self.anchors) / self.temperature
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return {"p": e / e.sum(axis=1, keepdims=True)}

    def expects(self) -> Mapping[str, Like] | None:
        return {"p": Like((len(self.anchors), self.actions), "f", least=0.0)}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        return {"p": self.combine(replies, "p")}

    def install(self, client: Client, teacher: Payload) -> None:
        # softmax(T log p / T) = p: as values, the teacher is T log p.
        client.agent.fit_anchors(self.anchors, self.temperature * np.log(np.maximum(teacher["p"], 1e-30)))
