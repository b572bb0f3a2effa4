"""Algorithm 2 with anchors that are not fixed before the run: states that the clients or the teacher's policy visited.

The server's state holds the next anchors, and the teacher carries the anchors that the clients need.
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
    """Algorithm 2 with anchors that the clients visited in training. It is opt-in, because it shares states.

    The first exchange collects the anchors: each client sends its share of the m states. Later exchanges are
    Algorithm 2; the anchors travel with Q_bar, so that a client that joins late or resumes has them.
    """

    m: int
    """The number of anchors that all clients send together."""
    clients: int
    n: int
    """The number of state variables."""
    actions: int | None = None
    combine: Combine = weighted_mean

    def anchors_of(self, teacher: Payload) -> Array:
        return teacher["anchors"]

    def reported_at(self, teacher: Payload | None) -> Array:
        return np.empty((0, self.n)) if teacher is None else teacher["anchors"]

    @property
    def is_mean(self) -> bool:
        return self.combine is weighted_mean

    @property
    def share(self) -> int:
        """The number of states that each client sends, rounded up."""
        return -(-self.m // self.clients)

    def _at(self, anchors: Array) -> AnchorCompile:
        return AnchorCompile(anchors, self.actions, self.combine)

    def start(self) -> Payload:
        return {}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        if teacher is None:
            return {"states": client.visited(self.share)}
        return self._at(teacher["anchors"]).report(client, teacher)

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        if teacher is None:
            return {"states": Expected((None, self.n), "f", votes=False)}
        return self._at(teacher["anchors"]).expects(teacher)

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        if "anchors" not in state:
            # No client gets more than its share of the anchors, however many states it sends.
            gathered = {"anchors": np.vstack([r.payload["states"][: self.share] for r in replies])}
            return gathered, gathered
        _, teacher = self._at(state["anchors"]).aggregate({}, replies)
        return state, {"anchors": state["anchors"], **teacher}

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        described = {"anchors": Expected((None, self.n), "f")}
        if "Q" in teacher and "anchors" in teacher:
            described["Q"] = Expected((*teacher["anchors"].shape[:1], self.actions), "f")
        return described

    def install(self, client: Client, teacher: Payload) -> None:
        if "Q" in teacher:
            self._at(teacher["anchors"]).install(client, teacher)
        else:
            client.agent.sync_target()


@dataclass(frozen=True, eq=False)
class TeacherAnchors:
    """Algorithm 2 with anchors that follow the teacher.

    After each exchange, the server plays the teacher's policy in its own copy of the environment and uses the states it
    visits. The clients will soon visit similar states, and no client shares its own.

    A client compiles Q_bar at the anchors where it was computed (`anchors` in the teacher); its next report is about
    the following ones (`next`).
    """

    inner: AnchorCompile
    rollout: Callable[[Array, Array, int], Array]
    """(anchors, Q_bar, episodes played) -> the next anchors."""

    def anchors_of(self, teacher: Payload) -> Array:
        return teacher["anchors"]

    def reported_at(self, teacher: Payload | None) -> Array:
        return self._next(teacher).anchors

    @property
    def is_mean(self) -> bool:
        return self.inner.is_mean

    def _next(self, teacher: Payload | None) -> AnchorCompile:
        """Return the exchange that follows a teacher; None stands for the start of the run."""
        return self.inner if teacher is None else self.inner.at(teacher["next"])

    def start(self) -> Payload:
        return {"anchors": self.inner.anchors}

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return self._next(teacher).report(client, teacher)

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return self._next(teacher).expects(teacher)

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        anchors = state["anchors"]
        _, teacher = self.inner.at(anchors).aggregate({}, replies)
        # If no episode ended in a round of steps, its number is the one after that of the last round.
        ended = [e.episode for r in replies for e in r.episodes]
        episodes = 1 + (max(ended) if ended else int(state.get("episodes", 0)))
        following = self.rollout(anchors, teacher["Q"], episodes)
        return (
            {"anchors": following, "episodes": np.array(episodes)},
            {"anchors": anchors, **teacher, "next": following},
        )

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        anchors = Expected(self.inner.anchors.shape, "f")
        return {"anchors": anchors, "next": anchors, **self.inner.teaches(teacher)}

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.at(teacher["anchors"]).install(client, teacher)
