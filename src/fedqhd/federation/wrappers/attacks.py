"""Attacks by lying clients, to test aggregation: `Attacked` wraps any engine and falsifies some of its replies.

The liars see all honest replies of the round and cooperate. They train as all others do; only their replies are false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedqhd.core import rng
from fedqhd.core.engine import Engine, Trial
from fedqhd.core.protocols import Array, Payload, Reply, under

SCALE = 10.0
"""How many times larger than honest values the loud attacks are."""
LITTLE = 1.5
"""How many standard deviations of the honest replies colluders depart from their mean."""


class Scene(NamedTuple):
    """What a liar knows when it falsifies one array of its reply."""

    own: Array
    """The array that it would send if it were honest, of any shape."""
    honest: Array
    """The arrays of the honest clients, (H, ...)."""
    first: Array
    """The honest array of its first reply."""
    teacher: Array | None
    """The teacher's array of this name, if there is one of this shape."""
    rng: np.random.Generator


def size(s: Scene) -> float:
    """Return the root mean square of the honest values."""
    return float(np.sqrt(np.mean(np.abs(s.honest) ** 2)))


def noise(s: Scene) -> Array:
    """Add Gaussian noise with SCALE times the size of honest values."""
    return s.own + SCALE * size(s) * s.rng.standard_normal(s.own.shape)


def constant(s: Scene) -> Array:
    """Claim everywhere that the first action is worth SCALE times the size of honest values and the others nothing."""
    lie = np.zeros_like(s.own)
    lie[..., 0] = SCALE * size(s)
    return lie


def collude(s: Scene) -> Array:
    """Shift the honest mean by LITTLE standard deviations ("a little is enough", Baruch et al., 2019).

    The values of the actions that the mean prefers go down and those of the others go up, but each single coordinate
    still looks like an honest one.
    """
    mean, spread = s.honest.mean(axis=0), s.honest.std(axis=0)
    preferred = (mean - mean.mean(axis=-1, keepdims=True)).real
    return mean - LITTLE * spread * np.sign(preferred)


ATTACKS: Mapping[str, Callable[[Scene], Array]] = {
    "sign-flip": lambda s: -s.own,
    "scaled": lambda s: -SCALE * s.own,
    "noise": noise,
    "constant": constant,
    "collude": collude,
    "stale": lambda s: s.first,
    "lazy": lambda s: s.own if s.teacher is None else s.teacher,
}


class Attacked:
    """An engine some of whose clients lie."""

    def __init__(self, engine: Engine, attack: str, liars: Sequence[int], seed: int) -> None:
        """Wrap an engine.

        Args:
            engine: Where the clients live.
            attack: One of `ATTACKS`.
            liars: The clients that lie.
            seed: The seed of the liars' random numbers.
        """
        self.engine, self.lie, self.liars, self.seed = engine, ATTACKS[attack], frozenset(liars), seed
        self._first: dict[int, Payload] = {}

    def round(self, teacher: Payload | None, episodes: int, clients: Sequence[int] | None = None) -> list[Reply]:
        replies = self.engine.round(teacher, episodes, clients)
        honest = [r for r in replies if r.client not in self.liars] or replies
        return [self._falsify(r, honest, teacher or {}) if r.client in self.liars else r for r in replies]

    def _falsify(self, reply: Reply, honest: Sequence[Reply], teacher: Payload) -> Reply:
        first = self._first.setdefault(reply.client, reply.payload)
        played = reply.episodes[-1].episode if reply.episodes else 0
        own_rng = np.random.default_rng(rng.env_seed(self.seed, reply.client, "attack", played))
        lies = {}
        for name, own in reply.payload.items():
            alike = np.stack([r.payload[name] for r in honest if r.payload[name].shape == own.shape] or [own])
            known = first[name] if name in first and first[name].shape == own.shape else own
            taught = teacher[name] if name in teacher and teacher[name].shape == own.shape else None
            lies[name] = np.asarray(self.lie(Scene(own, alike, known, taught, own_rng))).astype(own.dtype)
        return reply._replace(payload=lies)

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
        return {**self.engine.state(), **own}

    def restore(self, arrays: Payload) -> None:
        self.engine.restore(arrays)
        own = under(arrays, "attacked/")
        for client in {key.partition("/")[0] for key in own}:
            self._first[int(client)] = under(own, f"{client}/")
