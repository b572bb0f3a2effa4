"""FedQHD: Algorithm 1 for clients with one encoder, Algorithm 2 for clients with different ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedqhd.federation.aggregate import weighted_mean
from fedqhd.interfaces import Array, Client, Federation, FedQHDError, Payload, Reply


class ParameterAverage:
    """Algorithm 1. One encoder: W <- sum_i pi_i W_i, which is exact, since Q is linear in W."""

    def report(self, client: Client) -> Payload:
        return client.agent.params()

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        if len({r.fingerprint for r in replies}) > 1:
            raise FedQHDError(
                "the clients' encoders differ: their weights cannot be averaged, only their values on anchors"
            )
        return {name: weighted_mean(replies, name) for name in replies[0].payload}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.load(teacher)


class AnchorCompile:
    """Algorithm 2. Different encoders: Q_bar = sum_i pi_i Q_i on the anchors, then each client
    compiles Q_bar into its own features with one ridge solve."""

    def __init__(self, anchors: Array) -> None:
        self.anchors = anchors

    def report(self, client: Client) -> Payload:
        return {"Q": client.agent.q(self.anchors)}

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        return {"Q": weighted_mean(replies, "Q")}

    def install(self, client: Client, teacher: Payload) -> None:
        client.agent.fit_anchors(self.anchors, teacher["Q"])


class VisitedAnchors(AnchorCompile):
    """Algorithm 2 with anchors that the clients met in training: opt-in, since it shares states.

    The first exchange gathers the anchors, each client giving its part of the m; those after it are
    Algorithm 2, with the anchors beside Q_bar, so that a client who joins or resumes has them.
    """

    def __init__(self, m: int, clients: int, n: int) -> None:
        super().__init__(np.zeros((0, n), np.float32))
        self.share = -(-m // clients)

    def report(self, client: Client) -> Payload:
        return super().report(client) if len(self.anchors) else {"states": client.visited(self.share)}

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
        super().__init__(inner.anchors)
        self.inner, self.rollout = inner, rollout

    def report(self, client: Client) -> Payload:
        self.inner.anchors = self.anchors
        return self.inner.report(client)

    def aggregate(self, replies: Sequence[Reply]) -> Payload:
        teacher = {"anchors": self.anchors, **self.inner.aggregate(replies)}
        episodes = 1 + max(e.episode for r in replies for e in r.episodes)
        self.anchors = self.rollout(self.anchors, teacher["Q"], episodes)
        return {**teacher, "next": self.anchors}

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.anchors = teacher["anchors"]
        self.inner.install(client, teacher)
        self.anchors = teacher["next"]


def choose(fingerprints: Sequence[str], otherwise: Federation) -> Federation:
    """Algorithm 1 whenever all encoders are the same: through anchors it would not be recovered exactly."""
    return ParameterAverage() if len(set(fingerprints)) == 1 else otherwise
