"""Clients that lie, to test aggregation against: `Attacked` is any engine some of whose clients do.

The liars see all honest replies of the round, and work together. They train as everyone else; what they say is false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Array, Engine, Payload, Reply, under

SCALE = 10.0
"""How many times larger than honest values the loud attacks are."""
LITTLE = 1.5
"""Standard deviations of the honest replies by which colluders depart from their mean."""


class Scene(NamedTuple):
    """What a liar knows of one array: its own honest one, those of the honest clients (as rows), the one it sent
    first, what the teacher has under this name, and its generator."""

    own: Array
    honest: Array
    first: Array
    teacher: Array | None
    rng: np.random.Generator


def size(s: Scene) -> float:
    """Root mean square of honest values."""
    return float(np.sqrt(np.mean(np.abs(s.honest) ** 2)))


def noise(s: Scene) -> Array:
    return s.own + SCALE * size(s) * s.rng.standard_normal(s.own.shape)


def constant(s: Scene) -> Array:
    """The same everywhere: the first action is worth SCALE times as much as anything is, the others nothing."""
    lie = np.zeros_like(s.own)
    lie[..., 0] = SCALE * size(s)
    return lie


def collude(s: Scene) -> Array:
    """A little is enough (Baruch et al., 2019): LITTLE deviations from the honest mean, down for the actions that it
    prefers and up for the others. Each coordinate looks like an honest one."""
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
    """An engine of which some clients lie."""

    def __init__(self, engine: Engine, attack: str, liars: Sequence[int], seed: int) -> None:
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
