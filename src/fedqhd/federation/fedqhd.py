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
        """Return the anchors (m, n) at which this teacher was computed."""
        ...

    def reported_at(self, teacher: Payload | None) -> Array:
        """Return the anchors (m, n) of the reports that follow this teacher; None stands for the start of the run."""
        ...

    @property
    def is_mean(self) -> bool:
        """Whether the teacher is one weighted mean of the clients' functions and therefore defined at every state."""
        ...


@dataclass(frozen=True, eq=False)
class ParameterAverage:
    """Algorithm 1 for clients with one encoder: W <- sum_i pi_i W_i, which is exact because Q is linear in W."""

    like: Payload | None = None
    """Arrays with the shapes and types of the clients' parameters; None if these are not known."""
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
                "the clients' encoders differ: their weights cannot be averaged, only their values at anchors"
            )
        return state, {name: self.combine(replies, name) for name in replies[0].payload}

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        return self.expects(teacher) or {}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.load(teacher)


@dataclass(frozen=True, eq=False)
class AnchorCompile:
    """Algorithm 2 for clients with different encoders: the server computes Q_bar = sum_i pi_i Q_i at the anchors, and
    each client compiles Q_bar into its own features with one ridge solve."""

    anchors: Array
    """Scaled states, (m, n)."""
    actions: int | None = None
    """The number of actions A; None accepts any."""
    combine: Combine = weighted_mean

    def at(self, anchors: Array) -> Self:
        """Return the same exchange at other anchors (m, n)."""
        return replace(self, anchors=anchors)

    def anchors_of(self, teacher: Payload) -> Array:
        return self.anchors

    def reported_at(self, teacher: Payload | None) -> Array:
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

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        return {"Q": Expected((len(self.anchors), self.actions), "f")}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.fit_anchors(self.anchors, teacher["Q"])


def averages(terms: Terms) -> bool:
    """Return whether Algorithm 1 applies: all clients have the same encoder, and a readout W is what they learn."""
    return terms.same_encoder and terms.like.keys() == {"W"}


def choose(terms: Terms, otherwise: Federation, combine: Combine = weighted_mean) -> Federation:
    """Return Algorithm 1 if all clients have the same encoder and a readout W, `otherwise` if not.

    Algorithm 1 is exact, and an exchange through anchors would only approximate it. Networks are excluded: those of one
    shape share a fingerprint, but averaging their parameters does not average their Q.
    """
    return ParameterAverage(terms.like, combine) if averages(terms) else otherwise
