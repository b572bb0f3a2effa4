"""What an agent remembers: transitions as columns of plain arrays, and the features of their states.

Two policies decide what is forgotten when a memory is full: `Replay` overwrites the oldest transition, `Trajectories`
thins out whole episodes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.encoded import LastEncoded
from fedqhd.core.protocols import Array, Payload, Transition


class Memory:
    """At most `capacity` transitions of `n` state variables, of which the first `size` rows are filled.

    With features, row i of `scale * X` is Phi of the state in row i. Features are stored in the type that `features`
    names; "recompute" stores none, and they are made from the states whenever they are needed.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("s", "a", "r", "discount")

    def __init__(self, capacity: int, n: int, encoded: LastEncoded | None = None, features: str = "recompute") -> None:
        self.s = np.zeros((capacity, n), np.float32)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.size = 0
        self.scale = np.float32(1)
        self.X: Array = np.zeros((0, 0), np.float32)
        self._encoded = None if features == "recompute" else encoded
        if self._encoded is not None:
            # Untouched pages of zeros cost nothing until they are written.
            self.X = np.zeros((capacity, len(self._encoded.phi)), features)
            if features == "int8":  # |Phi_d| is at most D^-1/2, and int8 reaches 127
                self.scale = np.float32(1 / (127 * np.sqrt(self._encoded.encoder.D)))

    def state(self) -> Payload:
        """Only what has been filled and cannot be derived: it is written after every round."""
        return {name: _smallest(getattr(self, name)[: self.size]) for name in self.COLUMNS}

    def restore(self, p: Payload) -> None:
        self.size = len(p["a"])
        for name in self.COLUMNS:
            getattr(self, name)[: self.size] = p[name]
        if self._encoded is not None:
            for row, s in enumerate(self.s[: self.size]):
                self._encoded.store(s, self.scale, self.X, row)


def _smallest(column: Array) -> Array:
    """A copy, whole numbers in the smallest type that has room for them."""
    if column.dtype.kind != "i":
        return column.copy()
    low, high = np.min_scalar_type(column.min(initial=0)), np.min_scalar_type(column.max(initial=0))
    return column.astype(np.result_type(low, high))


class Replay(Memory):
    """A ring: the last `capacity` transitions, oldest overwritten first."""

    COLUMNS = (*Memory.COLUMNS, "joined")

    def __init__(self, capacity: int, n: int, encoded: LastEncoded | None = None, features: str = "recompute") -> None:
        super().__init__(capacity, n, encoded, features)
        self.s_next = np.zeros((capacity, n), np.float32)
        self.joined = np.zeros(capacity, np.bool_)
        """Whether the transition after a row goes on from it: then its state is this one's next state."""
        self._at = 0

    def add(self, t: Transition) -> int:
        """Store a transition, and return the row that it got."""
        i = self._at
        kernels.put(self.s, self.a, self.r, self.discount, self.s_next, self.joined, i, self.size > 0, *t)
        if self._encoded is not None:
            self._encoded.store(t.s, self.scale, self.X, i)
        self._at = (i + 1) % len(self.a)
        self.size = max(self.size, i + 1)
        return i

    def sample(self, B: int, rng: np.random.Generator) -> Array:
        """B rows, uniformly and with replacement; `integers` takes twice as long."""
        return kernels.drawn(rng.random(B), self.size)

    def state(self) -> Payload:
        """Where one transition goes on from another, its next state is not stored twice."""
        ends = self.s_next[: self.size][~self.joined[: self.size]]
        return {**super().state(), "s_end": ends, "at": np.array(self._at)}

    def restore(self, p: Payload) -> None:
        super().restore(p)
        self._at = int(p["at"])
        self.s_next[: self.size] = np.roll(p["s"], -1, axis=0)
        self.s_next[: self.size][~p["joined"]] = p["s_end"]


class Trajectories(Memory):
    """Transitions in the order they were met, so that the next state of a row is the state of the row after it.

    A truncated episode leaves one more row: its last state, in which no action was taken (-1). When the memory is full,
    every second episode is forgotten, the newest kept: what is old grows thin, but never vanishes at once.
    """

    COLUMNS = (*Memory.COLUMNS, "first")

    def __init__(self, capacity: int, n: int, encoded: LastEncoded | None = None, features: str = "recompute") -> None:
        super().__init__(capacity, n, encoded, features)
        self.first = np.zeros(capacity, np.bool_)
        """Whether an episode begins with a row."""

    def add(self, s: Array, a: int, r: float, discount: float, first: bool) -> bool:
        """Store a row behind all others. True if older ones had to go."""
        full = self.size == len(self.a)
        if full:
            self._thin()
        i = self.size
        self.s[i], self.a[i], self.r[i], self.discount[i], self.first[i] = s, a, r, discount, first
        if self._encoded is not None:
            self._encoded.store(s, self.scale, self.X, i)
        self.size += 1
        return full

    def _thin(self) -> None:
        episode = np.cumsum(self.first[: self.size])
        keep = np.flatnonzero((episode[-1] - episode) % 2 == 0)
        if len(keep) > 0.75 * self.size:  # episodes too long to choose among
            keep = np.arange(self.size // 2, self.size)
        columns = [getattr(self, name) for name in self.COLUMNS]
        for rows in (*columns, self.X) if self._encoded else columns:
            rows[: len(keep)] = rows[keep]
        self.first[0] = True
        self.size = len(keep)
