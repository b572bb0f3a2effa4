"""FedQHD: Algorithm 1 for clients with one encoder, Algorithm 2 for clients with different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Client, Expected, Federation, Payload, Reply
from fedqhd.federation.aggregate import Combine, weighted_mean
from fedqhd.federation.terms import Terms


@runtime_checkable
class ThroughAnchors(Protocol):
    """A federation whose teacher is Q_bar at anchors."""

    def anchors_of(self, teacher: Payload) -> Array:
        """The anchors at which this teacher was made."""
        ...

    @property
    def is_mean(self) -> bool:
        """Whether the teacher is one weighted mean of the clients' functions, and so defined at every state."""
        ...


@dataclass(frozen=True, eq=False)
class ParameterAverage:
    """Algorithm 1. One encoder: W <- sum_i pi_i W_i, which is exact, since Q is linear in W."""

    like: Payload | None = None
    """Arrays that look like the clients' parameters, where that is known."""
    combine: Combine = weighted_mean

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return client.agent.params()

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return None if self.like is None else {k: Expected(v.shape, v.dtype.kind) for k, v in self.like.items()}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        if len({r.fingerprint for r in replies}) > 1:
            raise FedQHDError(
                "the clients' encoders differ: their weights cannot be averaged, only their values on anchors"
            )
        return state, {name: self.combine(replies, name) for name in replies[0].payload}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.load(teacher)


@dataclass(frozen=True, eq=False)
class AnchorCompile:
    """Algorithm 2. Different encoders: Q_bar = sum_i pi_i Q_i on the anchors, then each client
    compiles Q_bar into its own features with one ridge solve."""

    anchors: Array
    actions: int | None = None
    combine: Combine = weighted_mean

    def at(self, anchors: Array) -> Self:
        """The same exchange at other anchors."""
        return replace(self, anchors=anchors)

    def anchors_of(self, teacher: Payload) -> Array:
        return self.anchors

    @property
    def is_mean(self) -> bool:
        return self.combine is weighted_mean

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return {"Q": client.agent.q(self.anchors)}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return {"Q": Expected((len(self.anchors), self.actions), "f")}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {"Q": self.combine(replies, "Q")}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.fit_anchors(self.anchors, teacher["Q"])


def choose(terms: Terms, otherwise: Federation, combine: Combine = weighted_mean) -> Federation:
    """Algorithm 1 whenever all encoders are the same: through anchors it would not be recovered exactly.

    Only for a readout: networks of one shape share a fingerprint, but averaging their parameters does not average
    their Q."""
    linear = terms.like.keys() == {"W"}
    return ParameterAverage(terms.like, combine) if terms.alike and linear else otherwise
