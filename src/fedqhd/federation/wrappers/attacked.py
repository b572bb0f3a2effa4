"""An engine some of whose clients lie, to test aggregation: it wraps any engine and falsifies some of its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedqhd.core import rng
from fedqhd.core.engine import Engine, Trial
from fedqhd.core.protocols import Array, Payload, Quota, Reply, under
from fedqhd.federation.wrappers.adaptive import ADAPTIVE, CLAIM, CLAIMING
from fedqhd.federation.wrappers.attacks import FIXED, Scene

ATTACKS: Mapping[str, Callable[[Scene], Array]] = {**FIXED, **ADAPTIVE}
PLAYED = "attacks/played/"
"""The beginning of the names of saved numbers of episodes."""
Verdict = Callable[[Sequence[Reply], Payload | None], list[bool]]
"""(replies of this round, the teacher before it) -> whether the rule in force would count each of them."""


def everything_counts(replies: Sequence[Reply], teacher: Payload | None) -> list[bool]:
    """The verdict of a rule that leaves nobody out."""
    return [True] * len(replies)


class Attacked:
    """An engine some of whose clients lie."""

    def __init__(
        self, engine: Engine, attack: str, liars: Sequence[int], seed: int, verdict: Verdict = everything_counts
    ) -> None:
        """Wrap an engine.

        Args:
            engine: Where the clients live.
            attack: One of `ATTACKS`.
            liars: The clients that lie.
            seed: The seed of the liars' random numbers.
            verdict: The rule in force, which adaptive liars know.
        """
        self.engine, self.attack, self.liars, self.seed = engine, attack, frozenset(liars), seed
        self.verdict = verdict
        self._first: dict[int, Payload] = {}
        self._played: dict[int, int] = {}

    def round(self, teacher: Payload | None, quota: Quota, clients: Sequence[int] | None = None) -> list[Reply]:
        replies = self.engine.round(teacher, quota, clients)
        return [self._falsify(r, replies, teacher) if r.client in self.liars else r for r in replies]

    def _falsify(self, reply: Reply, replies: Sequence[Reply], teacher: Payload | None) -> Reply:
        honest = [r for r in replies if r.client not in self.liars] or replies
        first, taught = self._first.setdefault(reply.client, reply.payload), teacher or {}
        # If no episode ended in a round of steps, its number is the one after that of the last round.
        played = reply.episodes[-1].episode if reply.episodes else self._played.get(reply.client, -1) + 1
        self._played[reply.client] = played
        own_rng = np.random.default_rng(rng.env_seed(self.seed, reply.client, "attack", played))
        lies = {}
        for name, own in reply.payload.items():
            alike = np.stack([r.payload[name] for r in honest if r.payload[name].shape == own.shape] or [own])
            known = first[name] if name in first and first[name].shape == own.shape else own
            of_teacher = taught[name] if name in taught and taught[name].shape == own.shape else None
            accepts = partial(self._accepts, replies, teacher, name)
            scene = Scene(own, alike, known, of_teacher, own_rng, accepts, played, name)
            lies[name] = np.asarray(ATTACKS[self.attack](scene)).astype(own.dtype)
        if self.attack in CLAIMING and reply.weight == reply.steps:
            reply = reply._replace(weight=CLAIM * reply.weight, steps=round(CLAIM * reply.steps))
        return reply._replace(payload=lies)

    def _accepts(self, replies: Sequence[Reply], teacher: Payload | None, name: str, lie: Array) -> bool:
        """Tell whether all liars of the round would count if each of them sent this lie."""
        lying = [r.client in self.liars for r in replies]
        sent = [
            r._replace(payload={**r.payload, name: lie.astype(r.payload[name].dtype)}) if lies else r
            for r, lies in zip(replies, lying, strict=True)
        ]
        return all(counts for counts, lies in zip(self.verdict(sent, teacher), lying, strict=True) if lies)

    def finish(self, teacher: Payload) -> None:
        self.engine.finish(teacher)

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        return self.engine.trial(teacher, trial)

    def each(self, f: Callable[[Any], Any]) -> list[Any]:
        return self.engine.each(f)

    def cpu_seconds(self) -> float:
        return self.engine.cpu_seconds()

    def close(self) -> None:
        self.engine.close()

    def state(self) -> Payload:
        own = {f"attacked/{c}/{name}": v for c, first in self._first.items() for name, v in first.items()}
        return {**self.engine.state(), **own, **{f"{PLAYED}{c}": np.array(k) for c, k in self._played.items()}}

    def restore(self, arrays: Payload) -> None:
        self.engine.restore(arrays)
        self._played = {int(client): int(k) for client, k in under(arrays, PLAYED).items()}
        own = under(arrays, "attacked/")
        for client in {key.partition("/")[0] for key in own}:
            self._first[int(client)] = under(own, f"{client}/")
