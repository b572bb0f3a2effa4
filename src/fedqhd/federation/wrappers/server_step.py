"""A server step beta: the teacher moves by beta times the mean change of the clients in a round.

With beta = 1 the teacher is the mean of what the clients report, as in the paper. But N clients that learn from
different data move a mean no further than one of them would move alone. With beta > 1 (the server's learning rate of
FedOpt, Reddi et al., 2021) they learn faster together, as long as their changes do not all say the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from fedqhd.core.protocols import Array, Client, Expected, Federation, Payload, Reply, under
from fedqhd.federation.wrappers.base import Wrapper

log = logging.getLogger(__name__)

TRUSTED = 0.7
"""The server step times the agreement of the clients is kept at most this large: where N clients report changes that
are orthogonal, up to 0.7 N times their mean is safe, and where all report the same change, no more than that change."""
OWN = "server_step."
"""The prefix of the arrays that the server's state holds for this wrapper."""
USED = OWN + "used"
"""The array of the state with the step of the last round."""
BEFORE = "before."
"""The prefix of the values, in a report, that a client had before it trained."""


def agreement(changes: Sequence[Payload], weights: Sequence[float]) -> float:
    """Return |sum_i pi_i d_i|^2 / sum_i pi_i |d_i|^2: 1 if all changes d_i are the same, 1/N if they are orthogonal.

    Args:
        changes: The changes of the clients, named arrays of the same shapes.
        weights: Their weights pi, which need not sum to 1.
    """
    total = sum(p * squared_norm(d) for p, d in zip(weights, changes, strict=True)) / sum(weights)
    return float(squared_norm(mean_change(changes, weights)) / total) if total > 0 else 1.0


def mean_change(changes: Sequence[Payload], weights: Sequence[float]) -> dict[str, Array]:
    """Return sum_i pi_i d_i with the weights pi normalised; the arguments are those of `agreement`."""
    return {k: np.average([d[k] for d in changes], axis=0, weights=weights) for k in changes[0]}


def squared_norm(p: Payload) -> float:
    """Return the sum of the squares of all numbers."""
    return float(sum(np.vdot(v, v).real for v in p.values()))


def safe_step(size: float, agree: float) -> float:
    """Return the largest step up to `size` that the agreement of the clients allows; a step up to 1 always is."""
    return min(size, max(1.0, TRUSTED / agree))


class Stepped(Wrapper):
    """A federation whose teacher moves by `size` times the mean change of a round.

    What a client had before a round is known to the server if clients average parameters: it is the last teacher. At
    anchors it is not, because a client compiles a teacher only approximately, so there it is part of the report. Until
    it is known, in the first round, the step is 1.

    Args:
        inner: The federation.
        size: The server step beta.
        momentum: The share mu of the last round's movement that is added to this one's (FedAvgM): v <- mu v + d.
        shared: Whether all clients have the same parameters before a round.
    """

    def __init__(self, inner: Federation, size: float, momentum: float, shared: bool) -> None:
        super().__init__(inner)
        self.size, self.momentum, self.shared = size, momentum, shared

    def install(self, client: Client, teacher: Payload) -> None:
        self.inner.install(client, teacher)
        if not self.shared:
            client.before = self.inner.report(client, teacher)

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        found = self.inner.report(client, teacher)
        return {**found, **{BEFORE + k: client.before[k] for k in self._sent_twice(teacher)}}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        expected = self.inner.expects(teacher)
        return expected and {**expected, **{BEFORE + k: expected[k] for k in self._sent_twice(teacher)}}

    def _sent_twice(self, teacher: Payload | None) -> list[str]:
        """Return the names of the arrays that clients report as they were before and after training."""
        if self.shared or teacher is None:
            return []
        return [k for k in self.inner.expects(teacher) or {} if k == "Q"]

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        own, rest = under(state, OWN), {k: v for k, v in state.items() if not k.startswith(OWN)}
        before = [under(own if self.shared else r.payload, BEFORE) for r in replies]
        kept: dict[str, Array] = {}
        if before[0]:
            replies, kept = self._moved(replies, before, own)
        after, teacher = self.inner.aggregate(rest, replies)
        if self.shared:
            kept |= {BEFORE + k: v for k, v in teacher.items()}
        return {**after, **{OWN + k: v for k, v in kept.items()}}, teacher

    def _moved(
        self, replies: Sequence[Reply], before: Sequence[Payload], own: Payload
    ) -> tuple[list[Reply], dict[str, Array]]:
        """Return the replies with larger changes, whose mean is the next teacher, and what the state keeps."""
        names = list(before[0])
        changes = [{k: r.payload[k] - b[k].astype(np.result_type(b[k], np.float64)) for k in names}
                   for r, b in zip(replies, before, strict=True)]  # fmt: skip
        weights = [r.weight for r in replies]
        step = safe_step(self.size, agreement(changes, weights))
        if step < self.size:
            said = bool(own.get("lowered", False))
            log.log(
                logging.INFO if said else logging.WARNING,
                "server_step=%g is too large for changes that agree so much: it is lowered to %.2f in this round%s",
                self.size, step, "" if said else " (this is said once; rounds.jsonl has the step of each round)",
            )  # fmt: skip
        velocity = under(own, "velocity.") or {k: np.zeros_like(v) for k, v in changes[0].items()}
        moved = [r._replace(payload={**{k: v for k, v in r.payload.items() if not k.startswith(BEFORE)},
                                     **{k: (b[k] + step * (d[k] + self.momentum * velocity[k])).astype(b[k].dtype)
                                        for k in names}})
                 for r, b, d in zip(replies, before, changes, strict=True)]  # fmt: skip
        kept: dict[str, Array] = {"used": np.array(step), "lowered": np.array(step < self.size or "lowered" in own)}
        if self.momentum:
            mean = mean_change(changes, weights)
            kept |= {"velocity." + k: self.momentum * velocity[k] + mean[k] for k in names}
        return moved, kept
