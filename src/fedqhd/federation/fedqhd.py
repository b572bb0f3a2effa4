"""FedQHD: Algorithm 1 for clients with one encoder, Algorithm 2 for clients with different ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Client, Federation, Like, Payload, Reply
from fedqhd.federation.aggregate import weighted_mean
from fedqhd.federation.terms import Terms

Combine = Callable[[Sequence[Reply], str], Array]
"""(replies, name) -> what the server makes of the arrays of that name."""


class ParameterAverage:
    """Algorithm 1. One encoder: W <- sum_i pi_i W_i, which is exact, since Q is linear in W."""

    def __init__(self, like: Payload | None = None, combine: Combine = weighted_mean) -> None:
        self.like, self.combine = like, combine

    def report(self, client: Client) -> Payload:
        return client.agent.params()

    def expects(self) -> Mapping[str, Like] | None:
        return None if self.like is None else {k: Like(v.shape, v.dtype.kind) for k, v in self.like.items()}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        if len({r.fingerprint for r in replies}) > 1:
            raise FedQHDError(
                "the clients' encoders differ: their weights cannot be averaged, only their values on anchors"
            )
        return {name: self.combine(replies, name) for name in replies[0].payload}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.load(teacher)


class AnchorCompile:
    """Algorithm 2. Different encoders: Q_bar = sum_i pi_i Q_i on the anchors, then each client
    compiles Q_bar into its own features with one ridge solve."""

    def __init__(self, anchors: Array, actions: int | None = None, combine: Combine = weighted_mean) -> None:
        self.anchors, self.actions, self.combine = anchors, actions, combine

    def report(self, client: Client) -> Payload:
        return {"Q": client.agent.q(self.anchors)}

    def expects(self) -> Mapping[str, Like] | None:
        return {"Q": Like((len(self.anchors), self.actions), "f")}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        return {"Q": self.combine(replies, "Q")}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.fit_anchors(self.anchors, teacher["Q"])

    def resume(self, teacher: Payload) -> None:
        """A server that goes on after this teacher: which anchors are the next, where that was not settled before."""
        self.anchors = teacher.get("next", teacher.get("anchors", self.anchors))


class VisitedAnchors(AnchorCompile):
    """Algorithm 2 with anchors that the clients met in training: opt-in, since it shares states.

    The first exchange gathers the anchors, each client giving its part of the m; those after it are
    Algorithm 2, with the anchors beside Q_bar, so that a client who joins or resumes has them.
    """

    def __init__(
        self, m: int, clients: int, n: int, actions: int | None = None, combine: Combine = weighted_mean
    ) -> None:
        super().__init__(np.zeros((0, n), np.float32), actions, combine)
        self.share = -(-m // clients)

    def report(self, client: Client) -> Payload:
        return super().report(client) if len(self.anchors) else {"states": client.visited(self.share)}

    def expects(self) -> Mapping[str, Like] | None:
        n = self.anchors.shape[1]
        return super().expects() if len(self.anchors) else {"states": Like((None, n), "f", votes=False)}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        if not len(self.anchors):
            self.anchors = np.vstack([r.payload["states"] for r in replies])
            return {"anchors": self.anchors}
        return {"anchors": self.anchors, **super().aggregate(replies)}

    def install(self, client: Client, teacher: Payload) -> None:
        if not len(self.anchors):
            self.anchors = teacher["anchors"]
        if "Q" in teacher:
            super().install(client, teacher)
        else:
            client.agent.sync_target()


class TeacherAnchors(AnchorCompile):
    """Algorithm 2 with anchors that follow the teacher: after each exchange, the states that its policy meets in the
    server's own copy of the environment. They are where the clients will soon be, and no client's states.

    Q_bar is compiled at the anchors that it was made for; the next report is about the next anchors.
    """

    def __init__(self, inner: AnchorCompile, rollout: Callable[[Array, Array, int], Array]) -> None:
        super().__init__(inner.anchors, inner.actions, inner.combine)
        self.inner, self.rollout = inner, rollout

    def report(self, client: Client) -> Payload:
        self.inner.anchors = self.anchors
        return self.inner.report(client)

    def expects(self) -> Mapping[str, Like] | None:
        return self.inner.expects()

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        teacher = {"anchors": self.anchors, **self.inner.aggregate(replies)}
        episodes = 1 + max(e.episode for r in replies for e in r.episodes)
        self.anchors = self.rollout(self.anchors, teacher["Q"], episodes)
        return {**teacher, "next": self.anchors}

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.anchors = teacher["anchors"]
        self.inner.install(client, teacher)
        self.anchors = teacher["next"]


def choose(terms: Terms, otherwise: AnchorCompile) -> Federation:
    """Algorithm 1 whenever all encoders are the same: through anchors it would not be recovered exactly.

    Only for a readout: networks of one shape share a fingerprint, but averaging their parameters does not average
    their Q."""
    linear = terms.like.keys() == {"W"}
    return ParameterAverage(terms.like, otherwise.combine) if terms.alike and linear else otherwise
