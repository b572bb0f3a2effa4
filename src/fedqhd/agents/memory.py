"""A ring buffer of plain arrays."""

from __future__ import annotations

import numpy as np

from fedqhd import kernels
from fedqhd.core.protocols import Array, Payload, Transition


class Replay:
    """The last `capacity` transitions, oldest overwritten first."""

    def __init__(self, capacity: int, n: int) -> None:
        self.s = np.zeros((capacity, n), np.float32)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.s_next = np.zeros((capacity, n), np.float32)
        self.joined = np.zeros(capacity, np.bool_)
        """Whether the transition after a row goes on from it: then its state is this one's next state."""
        self.size = 0
        self._at = 0

    def add(self, t: Transition) -> int:
        """The row that it got."""
        i = self._at
        kernels.put(self.s, self.a, self.r, self.discount, self.s_next, self.joined, i, self.size > 0, *t)
        self._at = (i + 1) % len(self.a)
        self.size = max(self.size, i + 1)
        return i

    def sample(self, B: int, rng: np.random.Generator) -> Array:
        """B rows, uniformly and with replacement; `integers` takes twice as long."""
        return kernels.drawn(rng.random(B), self.size)

    def state(self) -> Payload:
        """Only what has been filled and cannot be derived: it is written after every round."""
        k = self.size
        joined, a = self.joined[:k].copy(), self.a[:k]
        return {
            "s": self.s[:k].copy(), "a": a.astype(np.min_scalar_type(a.max(initial=0))), "r": self.r[:k].copy(),
            "discount": self.discount[:k].copy(), "s_end": self.s_next[:k][~joined], "joined": joined,
            "at": np.array(self._at),
        }  # fmt: skip

    def restore(self, p: Payload) -> None:
        self.size, self._at = len(p["a"]), int(p["at"])
        for name in ("s", "a", "r", "discount", "joined"):
            getattr(self, name)[: self.size] = p[name]
        self.s_next[: self.size] = np.roll(p["s"], -1, axis=0)
        self.s_next[: self.size][~p["joined"]] = p["s_end"]


class Trajectories:
    """Encoded transitions in the order they were met, so that the next state of a row is the state of the row after it.

    A truncated episode leaves one more row: its last state, in which no action was taken (-1). When the memory is full,
    every second episode is forgotten, the newest kept: what is old grows thin, but never vanishes at once.
    """

    def __init__(self, capacity: int, n: int, p: int, dtype: type = np.float32) -> None:
        self.s = np.zeros((capacity, n), np.float32)
        # Untouched pages of `empty` cost nothing until they are written.
        self.X: Array = np.empty((capacity, p), dtype)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.first = np.zeros(capacity, np.bool_)
        self.size = 0

    def add(self, s: Array, a: int, r: float, discount: float, first: bool) -> bool:
        """A row behind all others, X[size - 1] of which is the caller's to encode. True if older ones had to go."""
        full = self.size == len(self.a)
        if full:
            self._thin()
        i = self.size
        self.s[i], self.a[i], self.r[i], self.discount[i], self.first[i] = s, a, r, discount, first
        self.size += 1
        return full

    def _thin(self) -> None:
        episode = np.cumsum(self.first[: self.size])
        keep = np.flatnonzero((episode[-1] - episode) % 2 == 0)
        if len(keep) > 0.75 * self.size:  # episodes too long to choose among
            keep = np.arange(self.size // 2, self.size)
        for rows in (self.s, self.X, self.a, self.r, self.discount, self.first):
            rows[: len(keep)] = rows[keep]
        self.first[0] = True
        self.size = len(keep)

    def state(self) -> Payload:
        """Without the features, which are made again from the states."""
        k = self.size
        return {
            "s": self.s[:k].copy(), "a": self.a[:k].copy(), "r": self.r[:k].copy(),
            "discount": self.discount[:k].copy(), "first": self.first[:k].copy(),
        }  # fmt: skip

    def restore(self, p: Payload) -> None:
        """All but X, which is the agent's to encode."""
        self.size = len(p["a"])
        for name in ("s", "a", "r", "discount", "first"):
            getattr(self, name)[: self.size] = p[name]
