"""Encoders of grids: sparse hypervectors of active cells, bound in pairs and triples by the offsets between them.

A grid has H x W cells with C channels, such as the 10 x 10 images of MinAtar. Its items are the active cells, each pair
of active cells by its channels and offset, wherever it lies in the grid, and, for `triples`, each pair of neighbouring
cells of different channels (a ball and its trail, say, which together show a direction) with a third cell. A hash of
the client's own maps the items, of which there are tens of thousands to millions, to D components. What is active is 1,
however often it occurs, and the vector is scaled to norm 1.

Pairs by offsets follow B-PROST (Liang et al., 2016), which made linear learners as good as DQN on Atari.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload
from fedqhd.encoders.base import NO_ITEMS, NO_OMEGA, NO_PHASE, DrawnEncoder, Layout
from fedqhd.kernels.kinds import PRECOMPUTED

LARGEST = 2**24
"""The largest dimension of such an encoder."""


class Offsets(DrawnEncoder):
    """Active cells and pairs of them: Phi_d = k^-1/2 for the k components that the items of a grid switch on."""

    name = "offsets"
    layout: ClassVar[Layout] = {"grid": (np.int64, (3,)), "size": (np.int64, (1,)), "key": (np.uint64, (1,))}
    entry_bytes = 0
    fused = False
    is_sparse = True
    order: ClassVar[int] = 2
    """The largest number of cells in an item."""

    def __init__(self, **arrays: Array) -> None:
        super().__init__(**arrays)
        self._seen = np.zeros(self.D, np.bool_)
        self._active = np.empty(self.D, np.int64)

    @classmethod
    def check_arrays(cls, arrays: Payload) -> None:
        super().check_arrays(arrays)
        if not ((arrays["grid"] > 0).all() and arrays["grid"].prod() <= LARGEST and 0 < arrays["size"] <= LARGEST):
            raise ValueError(f"the sizes of a grid encoder are from 1 to {LARGEST:,}")

    @classmethod
    def for_grid(cls, grid: tuple[int, int, int], D: int, rng: np.random.Generator) -> Offsets:
        """Draw an encoder of grids H x W x C into D components."""
        if not 0 < D <= LARGEST:
            raise FedQHDError(f"dims={D} is not possible with encoder={cls.name}: it must be from 1 to {LARGEST:,}")
        key = rng.integers(2**64, dtype=np.uint64)
        return cls(grid=np.array(grid, np.int64), size=np.array([D]), key=np.array([key]))

    @classmethod
    def _draw(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> dict[str, Array]:
        return cls.for_grid((1, 1, n), D, rng).arrays

    @classmethod
    def limit_kernel(cls, s: Array, t: Array, sigma: float) -> Array:
        """Return the limit for states that are grids of one place with n channels, which is how `sample` takes them."""

        def alike(a: Array, b: Array) -> float:
            A, B = (items(z, (1, 1, len(z)), cls.order) for z in (a, b))
            return len(A & B) / np.sqrt(max(len(A) * len(B), 1))

        return np.array([alike(a, b) for a, b in zip(s, t, strict=True)])

    @property
    def n(self) -> int:
        return int(self.arrays["grid"].prod())

    @property
    def D(self) -> int:
        return int(self.arrays["size"][0])

    def switch_on(self, z: Array, active: Array) -> int:
        """Write the active components of a state z (n,) in float32 to `active` (D,) and return their number."""
        grid, key = self.arrays["grid"], self.arrays["key"][0]
        return int(kernels.switch_on(z, grid, self.order, key, self._seen, active))

    def matrix(self, s: Array) -> Any:
        Z = np.ascontiguousarray(self.rows(s), np.float32)
        found = [self._active[: self.switch_on(z, self._active)].copy() for z in Z]
        counts = np.array([len(active) for active in found], np.int64)
        values = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts)
        columns = np.concatenate([np.empty(0, np.int64), *found])
        return scipy.sparse.csr_array((values, columns, [0, *np.cumsum(counts)]), shape=(len(Z), self.D))

    def __call__(self, s: Array) -> Array:
        return np.asarray(self.matrix(s).toarray())

    def features(self, s: Array) -> Array:
        return self(s).astype(np.float32)

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return PRECOMPUTED, NO_OMEGA, NO_PHASE, NO_ITEMS


class Triples(Offsets):
    """Active cells, pairs of them, and local pairs of different channels together with a third cell."""

    name = "triples"
    order = 3


def items(z: Array, grid: tuple[int, int, int], order: int) -> set[tuple[Any, ...]]:
    """Return the items of a grid in plain Python; the inner product of two hypervectors tends to

        |items(s) & items(t)| / sqrt(|items(s)| |items(t)|)   for growing D.

    Args:
        z: The cells (H W C,).
        grid: H, W and C.
        order: The largest number of cells in an item.
    """
    cells = [tuple(int(i) for i in cell) for cell in np.argwhere(np.reshape(z, grid) > 0.5)]
    found: set[tuple[Any, ...]] = set(cells)
    for i, p in enumerate(cells if order > 1 else ()):
        for q in cells[i + 1 :]:
            first, second = (p, q) if p[2] <= q[2] else (q, p)
            dy, dx = second[0] - first[0], second[1] - first[1]
            pair = (first[2], second[2], dy, dx)
            found.add(pair)
            if order > 2 and first[2] != second[2] and max(abs(dy), abs(dx)) <= kernels.NEAR:
                found |= {(*pair, c, y - first[0], x - first[1]) for y, x, c in cells if (y, x, c) not in (p, q)}
    return found
