"""A ring buffer of plain arrays."""

from __future__ import annotations

import numpy as np

from fedqhd.interfaces import Array, Payload, Transition


class Replay:
    """The last `capacity` transitions, oldest overwritten first."""

    def __init__(self, capacity: int, n: int) -> None:
        self.s = np.zeros((capacity, n), np.float32)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.s_next = np.zeros((capacity, n), np.float32)
        self.size = 0
        self._at = 0

    def add(self, t: Transition) -> None:
        i = self._at
        self.s[i], self.a[i], self.r[i], self.discount[i], self.s_next[i] = t
        self._at = (i + 1) % len(self.a)
        self.size = max(self.size, i + 1)

    def sample(self, B: int, rng: np.random.Generator) -> Array:
        """B rows, uniformly and with replacement."""
        return rng.integers(self.size, size=B)

    def state(self) -> Payload:
        """Only what has been filled, so that a young buffer is a small file."""
        k = self.size
        return {
            "s": self.s[:k].copy(), "a": self.a[:k].copy(), "r": self.r[:k].copy(),
            "discount": self.discount[:k].copy(), "s_next": self.s_next[:k].copy(), "at": np.array(self._at),
        }  # fmt: skip

    def restore(self, p: Payload) -> None:
        self.size, self._at = len(p["a"]), int(p["at"])
        for name in ("s", "a", "r", "discount", "s_next"):
            getattr(self, name)[: self.size] = p[name]
