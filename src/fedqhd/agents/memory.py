"""Memories of transitions, stored as columns of plain arrays, with the features of their states.

When a memory is full, `Replay` overwrites the oldest transition, and `Trajectories` drops whole episodes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.agents.encoded import LastEncoded
from fedqhd.core.protocols import Array, Payload, Transition
from fedqhd.core.snapshot import fill


class Memory:
    """A memory of transitions, of which the first `size` rows are filled.

    If features are stored, row i of `scale * X` is Phi of the state in row i.

    Args:
        capacity: The largest number of rows.
        n: Number of state variables.
        encoded: The cache of features of the agent; None if there are no features.
        features: The type in which features are stored; "recompute" stores none.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("s", "a", "r", "discount")
    NO_ACTION: ClassVar[int] = 0
    """The lowest value of `a`, which is negative if there are rows without an action."""

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
            # The operating system allocates these pages only when they are written.
            self.X = np.zeros((capacity, len(self._encoded.phi)), features)
            if features == "int8":  # |Phi_d| is at most D^-1/2, which becomes 127
                self.scale = np.float32(1 / (127 * np.sqrt(self._encoded.encoder.D)))

    def state(self) -> Payload:
        """Return the filled rows without what can be derived, because they are written after every round."""
        return {name: _smallest(getattr(self, name)[: self.size]) for name in self.COLUMNS}

    def restore(self, p: Payload) -> None:
        """Restore the rows that `state` returned and recompute their features."""
        self.size = len(p["a"])
        for name in self.COLUMNS:
            fill(getattr(self, name)[: self.size], p[name], name)
        if self._encoded is not None:
            for row, s in enumerate(self.s[: self.size]):
                self._encoded.store(s, self.scale, self.X, row)

    def check_actions(self, actions: int) -> None:
        """Raise ValueError if restored rows have actions that do not exist, because kernels index by them unchecked."""
        a = self.a[: self.size]
        if a.min(initial=0) < self.NO_ACTION or a.max(initial=0) >= actions:
            raise ValueError(f"its memory has actions from {a.min()} to {a.max()}, and there are {actions}")


def _smallest(column: Array) -> Array:
    """Return a copy, with integers in the smallest type that can hold them."""
    if column.dtype.kind != "i":
        return column.copy()
    low, high = np.min_scalar_type(column.min(initial=0)), np.min_scalar_type(column.max(initial=0))
    return column.astype(np.result_type(low, high))


class Replay(Memory):
    """A ring buffer of the last `capacity` transitions."""

    COLUMNS = (*Memory.COLUMNS, "joined")

    def __init__(self, capacity: int, n: int, encoded: LastEncoded | None = None, features: str = "recompute") -> None:
        super().__init__(capacity, n, encoded, features)
        self.s_next = np.zeros((capacity, n), np.float32)
        self.joined = np.zeros(capacity, np.bool_)
        """Whether the next row continues a row, so that its state is the next state of that row."""
        self._at = 0

    def add(self, t: Transition) -> int:
        """Store a transition and return its row."""
        i = self._at
        kernels.put_transition(self.s, self.a, self.r, self.discount, self.s_next, self.joined, i, self.size > 0, *t)
        if self._encoded is not None:
            self._encoded.store(t.s, self.scale, self.X, i)
        self._at = (i + 1) % len(self.a)
        self.size = max(self.size, i + 1)
        return i

    def sample(self, B: int, rng: np.random.Generator) -> Array:
        """Draw B rows uniformly with replacement. `rng.integers` would take twice as long."""
        return kernels.draw_rows(rng.random(B), self.size)

    def ring(self) -> Any:
        """Return the memory as a record for kernels."""
        columns = self.s, self.a, self.r, self.discount, self.s_next, self.joined
        return kernels.Ring(*columns, self.X, self.scale)

    def counts(self, steps: int, updates: int) -> Array:
        """Return the numbers that a kernel counts on: filled rows, the next row, steps and updates of the agent."""
        return np.array([self.size, self._at, steps, updates])

    def take(self, counts: Array) -> tuple[int, int]:
        """Take over the numbers of `counts` from a kernel and return the agent's steps and updates."""
        self.size, self._at, steps, updates = (int(k) for k in counts)
        return steps, updates

    def state(self) -> Payload:
        """Return the filled rows; the next state is saved only if it is not the state of the next row."""
        ends = self.s_next[: self.size][~self.joined[: self.size]]
        return {**super().state(), "s_end": ends, "at": np.array(self._at)}

    def restore(self, p: Payload) -> None:
        super().restore(p)
        self._at = int(p["at"])
        if not 0 <= self._at < len(self.a):
            raise ValueError(f"its memory of {len(self.a)} rows goes on at row {self._at}")
        self.s_next[: self.size] = np.roll(p["s"], -1, axis=0)
        self.s_next[: self.size][~p["joined"]] = p["s_end"]


class Trajectories(Memory):
    """Transitions in the order in which they happened, so that the next state of a row is the state of the next row.

    A truncated episode has one more row for its last state, in which no action was taken (a = -1). When the memory is
    full, every second episode is dropped, but not the newest one. Old episodes thus become sparse but do not all
    disappear at once.
    """

    COLUMNS = (*Memory.COLUMNS, "first")
    NO_ACTION = -1

    def __init__(self, capacity: int, n: int, encoded: LastEncoded | None = None, features: str = "recompute") -> None:
        super().__init__(capacity, n, encoded, features)
        self.first = np.zeros(capacity, np.bool_)
        """Whether a row is the first of an episode."""

    def add(self, s: Array, a: int, r: float, discount: float, first: bool) -> bool:
        """Append a row and return whether older rows had to be dropped."""
        full = self.make_room()
        i = self.size
        self.s[i], self.a[i], self.r[i], self.discount[i], self.first[i] = s, a, r, discount, first
        if self._encoded is not None:
            self._encoded.store(s, self.scale, self.X, i)
        self.size += 1
        return full

    def make_room(self) -> bool:
        """Drop episodes if the memory is full, and return whether it was."""
        full = self.size == len(self.a)
        if full:
            self._thin()
        return full

    def _thin(self) -> None:
        episode = np.cumsum(self.first[: self.size])
        keep = np.flatnonzero((episode[-1] - episode) % 2 == 0)
        if len(keep) > 0.75 * self.size:  # that would free too little: drop the older half of the rows
            keep = np.arange(self.size // 2, self.size)
        columns = [getattr(self, name) for name in self.COLUMNS]
        for rows in (*columns, self.X) if self._encoded else columns:
            rows[: len(keep)] = rows[keep]
        self.first[0] = True
        self.size = len(keep)
