"""The server's side of a round, the same for every engine: which clients take part, and whose replies count."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Array, Expected, Federation, Payload, Quota, Reply, under
from fedqhd.federation.aggregate import MEAN, Rule
from fedqhd.federation.asked import LONGEST, Asked, check_record
from fedqhd.federation.fedqhd import ThroughAnchors
from fedqhd.federation.play import Play, Stage, clearly_worse
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings
from fedqhd.federation.validate import Participant, Refused, check_reply, need
from fedqhd.federation.wrappers.base import unwrapped

log = logging.getLogger(__name__)

ONCE = " (this is said once; summary.json counts how often it happens)"
WARNED = 20
"""The largest number of warnings of one kind, because a fleet may have thousands of clients."""


@dataclass
class Server:
    """Invites clients, checks their replies and selects those that count.

    By default, all clients take part and every reply that can be averaged counts.
    """

    members: Sequence[Participant] | None = None
    """What the server knows of each client; None invites all clients and checks only the arrays of replies."""
    present: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The first and the last round of each client that joins late or leaves early."""
    participation: float = ParticipationSettings.participation
    """The share of the available clients that a round invites."""
    late: float = ParticipationSettings.late
    """The probability that a reply arrives a round late; its client does not take part in the round of its arrival."""
    late_weight: float = ParticipationSettings.late_weight
    """The factor on the weight of a late reply; 0 drops it."""
    min_clients: int = ParticipationSettings.min_clients
    """The number of valid replies that a round needs."""
    attempts: int = 1
    """How often a round is played before too few valid replies end the run."""
    max_magnitude: float = AggregationSettings.max_magnitude
    """A reply with a larger number is refused."""
    sites: int = 1
    """The number of environments of each client; only a pooled oracle has more than one."""
    longest: int = LONGEST
    """The largest number of steps of an episode."""
    repeat: int = 1
    """The steps for which clients repeat each action."""
    rule: Rule = MEAN
    """Selects the replies that count."""
    stage: Stage | None = None
    """Where a rule that plays replies plays them."""
    seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """What happened to replies: "refused/CLIENT/REASON", "absent/CLIENT/REASON", "left out/CLIENT", "late/CLIENT",
    "repeated", "taken back", "played episodes", "played steps"."""
    pending: list[Reply] = field(default_factory=list)
    """Replies that arrive in the next round."""
    used_weights: dict[int, float] = field(default_factory=dict)
    """The weights of the clients whose replies went into the last teacher; none if that teacher was taken back."""
    current: int = 0
    """The round under way."""
    seconds: float = 0.0
    """The time spent on checking and aggregating since this was last reset."""

    def _draw(self, purpose: str, k: int, attempt: int) -> np.random.Generator:
        return np.random.default_rng(rng.env_seed(self.seed, rng.PUBLIC, purpose, k * self.attempts + attempt))

    def invite(self, k: int, attempt: int = 0) -> list[int] | None:
        """Draw the clients of round k: a share of those that are present and owe no late reply.

        Returns:
            Client numbers in ascending order, which may be none at all, or None for all clients.
        """
        self.current = k
        if self.members is None:
            return None
        busy = {r.client for r in self.pending}
        available = [
            i for i in range(len(self.members))
            if i not in busy and (i not in self.present or self.present[i][0] <= k <= self.present[i][1])
        ]  # fmt: skip
        # If nobody is available, the slice below is empty, and the round consists of the late replies alone.
        size = max(1, round(self.participation * len(available)))
        return sorted(int(i) for i in self._draw("invite", k, attempt).permutation(available)[:size])

    def most(self, quota: Quota) -> int:
        """Return the largest number of episodes, or of steps, that a client plays if it is asked for a quota."""
        return Asked(0, quota, 0, self.sites, self.longest, self.repeat).most

    def recorded(self, k: int, replies: Sequence[Reply], quota: Quota, before: int) -> list[Reply]:
        """Return the replies whose records of the round can be stored. The others count and leave no other trace.

        Args:
            k: The round.
            replies: The replies as the engine delivers them.
            quota: The episodes or steps that were asked for.
            before: The largest number of episodes, or of steps, that a client can have played before.
        """
        if self.members is None:
            return list(replies)
        kept = []
        for reply in replies:
            try:
                known = type(reply.client) is int and 0 <= reply.client < len(self.members)
                need(known, "client", f"there are only clients 0 to {len(self.members) - 1}")
                check_record(reply, Asked(reply.client, quota, before, self.sites, self.longest, self.repeat))
            except Refused as why:
                self._refuse(k, reply, why)
            else:
                kept.append(reply)
        return kept

    def _refuse(self, k: int, reply: Reply, why: Refused) -> None:
        told = f"round {k}: the reply of client {reply.client!r:.20} is refused: {why}"
        self._count(f"refused/{reply.client!r:.20}/{why.kind}", told)

    def admit(
        self, k: int, attempt: int, replies: Sequence[Reply], expects: Mapping[str, Expected] | None
    ) -> list[Reply]:
        """Check the replies of a round and return the valid ones that have arrived by its end, in client order.

        Late replies of the previous round are among them, with their reduced weight; some of the new replies may become
        `pending` in turn.

        Args:
            k: The round.
            attempt: How often the round was played before.
            replies: The replies as the engine delivers them.
            expects: The format of a reply; None if it is not known.
        """
        fresh = self._valid(k, replies, expects)
        underway = self._draw("late", k, attempt).random(len(fresh)) < self.late
        arrived = list(compress(fresh, ~underway))
        earlier, self.pending = self.pending, list(compress(fresh, underway))
        self.counts.update(f"late/{r.client}" for r in earlier)
        if self.late_weight:
            # Check them again, because the expected format may have changed since they were sent.
            late = self._valid(k, earlier, expects, {r.client for r in arrived})
            arrived += [r._replace(weight=self.late_weight * r.weight) for r in late]
        return sorted(arrived, key=lambda r: r.client)

    def _valid(
        self, k: int, replies: Sequence[Reply], expects: Mapping[str, Expected] | None, heard: Set[int] = frozenset()
    ) -> list[Reply]:
        """Return the replies that pass all checks, at most one per client and none of the clients in `heard`."""
        valid: dict[int, Reply] = {}
        for reply in replies:
            try:
                check_reply(reply, self.members, expects, self.max_magnitude)
                if reply.client in valid or reply.client in heard:
                    raise Refused("duplicate", "it has replied already")
            except Refused as why:
                self._refuse(k, reply, why)
            else:
                valid[reply.client] = reply
        return list(valid.values())

    def record_absence(self, client: int, kind: str, sentence: str) -> None:
        """Count and log a client that was invited but did not reply.

        Args:
            client: Its number.
            kind: The reason in one word, by which it is counted.
            sentence: The reason in one sentence, for the log.
        """
        self._count(f"absent/{client}/{kind}", f"client {client} is left out of this round: {sentence}")

    def _count(self, what: str, sentence: str) -> None:
        """Count what happened to a reply, and log the sentence: as a warning the first time, then as information."""
        kind, first = what.partition("/")[0], not self.counts[what]
        self.counts[what] += 1
        known = sum(key.partition("/")[0] == kind for key in self.counts) if first else 0
        warn = first and known <= WARNED
        log.log(logging.WARNING if warn else logging.INFO, "%s%s", sentence, ONCE if warn else "")
        if first and known == WARNED:
            log.warning("more that is %s is only counted", kind)

    def aggregate(
        self, k: int, federation: Federation, state: Payload, teacher: Payload | None, valid: Sequence[Reply]
    ) -> tuple[Payload, Payload]:
        """Return the federation's next state and the next teacher, made of the valid replies that count.

        If the rule plays and the next teacher plays clearly worse than the last one, it is taken back: state and
        teacher stay as they were, and the clients report once more about the same anchors.

        Args:
            k: The round.
            federation: What clients and server exchange.
            state: Its state before this round.
            teacher: The last teacher, or None in the first round.
            valid: The valid replies of the round, at least one.
        """
        play = self._play(k, federation, teacher, self.counts)
        selected = self.select(k, valid, federation.expects(teacher), play)
        following = federation.aggregate(state, selected)
        if play is None or play.last is None:
            return following
        new = play.earn(following[1]["Q"])
        if not clearly_worse(new, play.last):
            return following
        told = f"round {k}: the teacher is taken back: its return of {new.mean():.1f} in the server's environment is"
        self._count("taken back", f"{told} clearly worse than the {play.last.mean():.1f} of the last one")
        self.used_weights = {}
        assert teacher is not None  # it has been played
        return state, teacher

    def _play(self, k: int, federation: Federation, teacher: Payload | None, counts: Counter[str]) -> Play | None:
        """Return how the server plays what is reported after a teacher, or None if it cannot; plays are counted."""
        stage, through = self.stage, unwrapped(federation)
        if stage is None or not isinstance(through, ThroughAnchors):
            return None
        counted: set[bytes] = set()

        def earn(anchors: Array, Q: Array) -> Array:
            played = stage.play(anchors, Q, k)
            if Q.tobytes() not in counted:
                counts.update({"played episodes": len(played.returns), "played steps": played.steps})
            counted.add(Q.tobytes())
            return played.returns

        last = None if teacher is None else earn(through.anchors_of(teacher), teacher["Q"])
        return Play(partial(earn, through.reported_at(teacher)), last)

    def verdict(self, federation: Federation, replies: Sequence[Reply], teacher: Payload | None) -> list[bool]:
        """Tell for each reply of the round under way whether it would count.

        Simulated liars who know the rule ask this, so it is neither counted nor logged.
        """
        play = self._play(self.current, federation, teacher, Counter())
        return self.rule.accepted(replies, federation.expects(teacher), play)

    def select(
        self,
        k: int,
        valid: Sequence[Reply],
        expects: Mapping[str, Expected] | None,
        play: Play | None = None,
    ) -> list[Reply]:
        """Return the valid replies that the aggregation rule does not leave out, as they count and in client order.

        Clients that are left out are counted and logged, and `used_weights` is set.

        Args:
            k: The round.
            valid: The valid replies.
            expects: The format of a reply; None if it is not known.
            play: How the server plays in this round; None if it cannot.
        """
        valid = sorted(valid, key=lambda r: r.client)
        counted = self.rule.counted(valid, expects, play)
        for reply in (r for i, r in enumerate(valid) if i not in counted):
            told = f"round {k}: aggregate={self.rule.name} leaves out the reply of client {reply.client}"
            self._count(f"left out/{reply.client}", f"{told}: {self.rule.reason}")
        selected = list(counted.values())
        self.used_weights = {r.client: r.weight for r in selected}
        return selected

    def state(self) -> tuple[Payload, dict[str, Any]]:
        """Return what a checkpoint stores of the server: the arrays of pending replies, and a JSON-compatible note."""
        arrays = {f"{i}/{name}": v for i, r in enumerate(self.pending) for name, v in r.payload.items()}
        return arrays, {"counts": dict(self.counts), "pending": [r.note() for r in self.pending]}

    def restore(self, arrays: Payload, note: Mapping[str, Any]) -> None:
        """Restore the server from what `state` returned."""
        self.counts = Counter(note["counts"])
        self.pending = [Reply.from_note(old, under(arrays, f"{i}/")) for i, old in enumerate(note["pending"])]
