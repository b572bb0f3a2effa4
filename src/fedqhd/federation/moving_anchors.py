"""Algorithm 2 with anchors that are not settled before the run: states that clients met, or that the teacher meets.

Which anchors come next is part of the server's state; the teacher carries those that the clients need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedqhd.core.protocols import Array, Client, Expected, Payload, Reply
from fedqhd.federation.aggregate import Combine, weighted_mean
from fedqhd.federation.fedqhd import AnchorCompile


@dataclass(frozen=True, eq=False)
class VisitedAnchors:
    """Algorithm 2 with anchors that the clients met in training: opt-in, since it shares states.

    The first exchange gathers the anchors, each client giving its part of the m; those after it are
    Algorithm 2, with the anchors beside Q_bar, so that a client who joins or resumes has them.
    """

    m: int
    """How many anchors all clients give together."""
    clients: int
    n: int
    """The number of state variables."""
    actions: int | None = None
    combine: Combine = weighted_mean

    def anchors_of(self, teacher: Payload) -> Array:
        return teacher["anchors"]

    @property
    def is_mean(self) -> bool:
        return self.combine is weighted_mean

    def _at(self, anchors: Array) -> AnchorCompile:
        return AnchorCompile(anchors, self.actions, self.combine)

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        if teacher is None:
            return {"states": client.visited(-(-self.m // self.clients))}
        return self._at(teacher["anchors"]).report(client, teacher)

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        if teacher is None:
            return {"states": Expected((None, self.n), "f", votes=False)}
        return self._at(teacher["anchors"]).expects(teacher)

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        if "anchors" not in state:
            gathered = {"anchors": np.vstack([r.payload["states"] for r in replies])}
            return gathered, gathered
        _, teacher = self._at(state["anchors"]).aggregate({}, replies)
        return state, {"anchors": state["anchors"], **teacher}

    def install(self, client: Client, teacher: Payload) -> None:
        if "Q" in teacher:
            self._at(teacher["anchors"]).install(client, teacher)
        else:
            client.agent.sync_target()


@dataclass(frozen=True, eq=False)
class TeacherAnchors:
    """Algorithm 2 with anchors that follow the teacher: after each exchange, the states that its policy meets in the
    server's own copy of the environment. They are where the clients will soon be, and no client's states.

    Q_bar is compiled at the anchors that it was made for; the next report is about the next anchors.
    """

    inner: AnchorCompile
    rollout: Callable[[Array, Array, int], Array]
    """(anchors, Q_bar, episodes played) -> the next anchors."""

    def anchors_of(self, teacher: Payload) -> Array:
        return teacher["anchors"]

    @property
    def is_mean(self) -> bool:
        return self.inner.is_mean

    def _next(self, teacher: Payload | None) -> AnchorCompile:
        """The exchange that follows a teacher."""
        return self.inner if teacher is None else self.inner.at(teacher["next"])

    def start(self) -> Payload:
        return {"anchors": self.inner.anchors}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return self._next(teacher).report(client, teacher)

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return self._next(teacher).expects(teacher)

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        anchors = state["anchors"]
        _, made = self.inner.at(anchors).aggregate({}, replies)
        episodes = 1 + max(e.episode for r in replies for e in r.episodes)
        following = self.rollout(anchors, made["Q"], episodes)
        return {"anchors": following}, {"anchors": anchors, **made, "next": following}

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.at(teacher["anchors"]).install(client, teacher)
