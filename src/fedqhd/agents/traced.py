"""Features of the present and the next state with eligibility traces, dense or sparse, for the learner `traces`."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedqhd import kernels
from fedqhd.agents.encoded import LastEncoded
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder
from fedqhd.encoders.offsets import Offsets


class Traced(Protocol):
    """The features of two states in succession, and the traces E (A, R) of the features before."""

    E: Array

    def encode_next(self, s: Array) -> None:
        """Encode a state s (n,) as the next one."""
        ...

    def values_next(self, q: Array) -> None:
        """Write Q(s', .) of the next state to q (A,)."""
        ...

    def value(self, a: int) -> float:
        """Return Q(s, a) of the present state."""
        ...

    def step(self, a: int, step: float, decay: float, replacing: bool) -> None:
        """Take a step of `fedqhd.agents.td.trace_step` on the features of the present state."""
        ...

    def advance(self) -> None:
        """Make the next state the present one."""
        ...

    def forget(self) -> None:
        """Set all traces to zero."""
        ...

    def restored(self) -> None:
        """Take over traces E that were restored."""
        ...


class DenseTraced:
    """Dense features, which a kernel or the encoder itself computes; `rows` (A, R) are the weights."""

    def __init__(self, encoder: BaseEncoder, rows: Array) -> None:
        self.rows, self.E = rows, np.zeros_like(rows)
        self._now, self._next = LastEncoded(encoder), LastEncoded(encoder)

    def encode_next(self, s: Array) -> None:
        self._next.encode(s)

    def values_next(self, q: Array) -> None:
        q[:] = self.rows @ self._next.phi

    def value(self, a: int) -> float:
        return float(self.rows[a] @ self._now.phi)

    def step(self, a: int, step: float, decay: float, replacing: bool) -> None:
        kernels.dense_trace_step(self.rows, self.E, self._now.phi, a, replacing, step, decay)

    def advance(self) -> None:
        self._now, self._next = self._next, self._now

    def forget(self) -> None:
        self.E[:] = 0

    def restored(self) -> None:
        self._now.forget()
        self._next.forget()


class SparseTraced:
    """Sparse features as lists of active components; a step costs what is active, not what the dimension is."""

    def __init__(self, encoder: Offsets, rows: Array) -> None:
        self.encoder, self.rows, self.E = encoder, rows, np.zeros_like(rows)
        self._now, self._next = (np.zeros(encoder.D, np.int64) for _ in range(2))
        self._k_now = self._k_next = 0
        self._listed, self._count = np.zeros(rows.size, np.int64), 0
        self._q = np.zeros(len(rows), np.float32)

    def encode_next(self, s: Array) -> None:
        self._k_next = self.encoder.switch_on(s, self._next)

    def values_next(self, q: Array) -> None:
        kernels.sparse_values(self._next, self._k_next, self.rows, q)

    def value(self, a: int) -> float:
        kernels.sparse_values(self._now, self._k_now, self.rows[a : a + 1], self._q)
        return float(self._q[0])

    def step(self, a: int, step: float, decay: float, replacing: bool) -> None:
        self._count = kernels.sparse_trace_step(
            self.rows, self.E, self._listed, self._count, self._now, self._k_now, a, replacing, step, decay
        )

    def advance(self) -> None:
        self._now, self._next = self._next, self._now
        self._k_now, self._k_next = self._k_next, self._k_now

    def forget(self) -> None:
        self.E.reshape(-1)[self._listed[: self._count]] = 0
        self._count = 0

    def restored(self) -> None:
        places = np.flatnonzero(self.E)
        self._listed[: len(places)], self._count = places, len(places)


def traced(encoder: BaseEncoder, rows: Array) -> Traced:
    """Return the features and traces of an agent with this encoder and weights `rows` (A, R)."""
    return SparseTraced(encoder, rows) if isinstance(encoder, Offsets) else DenseTraced(encoder, rows)
