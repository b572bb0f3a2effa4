"""The server's side of a round, the same for every engine: who takes part, whose reply counts, and since when."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Episode, Expected, Payload, Reply, under
from fedqhd.federation.aggregate import MEAN, Rule
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings
from fedqhd.federation.validate import Participant, Refused, check_reply

log = logging.getLogger(__name__)


@dataclass
class Server:
    """Told nothing, it takes everyone's reply and checks that it can be averaged."""

    members: Sequence[Participant] | None = None
    present: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """First and last round of the clients that come late or leave."""
    participation: float = ParticipationSettings.participation
    late: float = ParticipationSettings.late
    """The chance that a reply comes a round late; its client sits out the round in which it arrives."""
    late_weight: float = ParticipationSettings.late_weight
    min_clients: int = ParticipationSettings.min_clients
    attempts: int = 1
    """How often a round is played before too few valid replies end the run."""
    max_magnitude: float = AggregationSettings.max_magnitude
    rule: Rule = MEAN
    """Whose replies count, and what is made of them."""
    seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """What happened to replies: "refused/CLIENT/REASON", "absent/CLIENT/REASON", "left out/CLIENT", "late/CLIENT",
    "repeated"."""
    pending: list[Reply] = field(default_factory=list)
    """Replies on their way."""
    counted: dict[int, float] = field(default_factory=dict)
    """The clients whose replies made the last teacher, and their weights."""
    seconds: float = 0.0
    """Spent on checking and aggregating since the program began."""

    def _draw(self, purpose: str, k: int, attempt: int) -> np.random.Generator:
        return np.random.default_rng(rng.env_seed(self.seed, rng.PUBLIC, purpose, k * self.attempts + attempt))

    def invite(self, k: int, attempt: int = 0) -> list[int] | None:
        """The clients of round k: all, or a share of those that are there and not still underway."""
        if self.members is None:
            return None
        busy = {r.client for r in self.pending}
        available = [
            i for i in range(len(self.members))
            if i not in busy and (i not in self.present or self.present[i][0] <= k <= self.present[i][1])
        ]  # fmt: skip
        size = max(1, round(self.participation * len(available)))  # of nobody, nobody: replies underway are waited for
        return sorted(int(i) for i in self._draw("invite", k, attempt).permutation(available)[:size])

    def admit(
        self, k: int, attempt: int, replies: Sequence[Reply], expects: Mapping[str, Expected] | None
    ) -> list[Reply]:
        """The valid ones of the replies that have arrived by the end of the round, in client order."""
        fresh = self._valid(k, replies, expects)
        underway = self._draw("late", k, attempt).random(len(fresh)) < self.late
        arrived = [r for r, late in zip(fresh, underway, strict=True) if not late]
        earlier, self.pending = self.pending, [r for r, late in zip(fresh, underway, strict=True) if late]
        self.counts.update(f"late/{r.client}" for r in earlier)
        if self.late_weight:
            # Checked once more: what is expected may have changed since it was sent.
            late = self._valid(k, earlier, expects, {r.client for r in arrived})
            arrived += [r._replace(weight=self.late_weight * r.weight) for r in late]
        return sorted(arrived, key=lambda r: r.client)

    def _valid(
        self, k: int, replies: Sequence[Reply], expects: Mapping[str, Expected] | None, heard: Set[int] = frozenset()
    ) -> list[Reply]:
        """Without those that are refused, or of a client that was heard already."""
        valid: dict[int, Reply] = {}
        for reply in replies:
            try:
                check_reply(reply, self.members, expects, self.max_magnitude)
                if reply.client in valid or reply.client in heard:
                    raise Refused("duplicate", "it has replied already")
            except Refused as why:
                self.counts[f"refused/{reply.client!r:.20}/{why.kind}"] += 1
                log.warning("round %d: the reply of client %.20r is refused: %s", k, reply.client, why)
            else:
                valid[reply.client] = reply
        return list(valid.values())

    def absent(self, client: int, kind: str, sentence: str) -> None:
        """A client that was asked and whose reply did not come, as its engine says it."""
        self.counts[f"absent/{client}/{kind}"] += 1
        log.warning("client %d is left out of this round: %s", client, sentence)

    def believed(self, k: int, valid: Sequence[Reply], expects: Mapping[str, Expected] | None) -> list[Reply]:
        """Those of the valid replies that the rule of aggregation does not leave out, in client order."""
        valid = sorted(valid, key=lambda r: r.client)
        kept = self.rule.counting(valid, expects)
        out = [r.client for r, keep in zip(valid, kept, strict=True) if not keep]
        self.counts.update(f"left out/{i}" for i in out)
        if out:
            log.info("round %d: aggregate=%s leaves out the replies of clients %s", k, self.rule.name, out)
        believed = [r for r, keep in zip(valid, kept, strict=True) if keep]
        self.counted = {r.client: r.weight for r in believed}
        return believed

    def state(self) -> tuple[Payload, dict[str, Any]]:
        """All that resuming needs: arrays, and a note."""
        arrays = {f"{i}/{name}": v for i, r in enumerate(self.pending) for name, v in r.payload.items()}
        pending = [r._replace(payload={}, seconds=dict(r.seconds)) for r in self.pending]
        return arrays, {"counts": dict(self.counts), "pending": pending}

    def restore(self, arrays: Payload, note: Mapping[str, Any]) -> None:
        self.counts = Counter(note["counts"])
        self.pending = []
        for i, (client, _, weight, steps, episodes, fingerprint, seconds) in enumerate(note["pending"]):
            played = tuple(Episode(*e) for e in episodes)
            self.pending.append(Reply(client, under(arrays, f"{i}/"), weight, steps, played, fingerprint, seconds))
