"""The symbolic encoder of hyperdimensional computing, made of levels, roles, binding, permutation and bundling."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedqhd.core.protocols import Array
from fedqhd.encoders.base import NO_OMEGA, DrawnEncoder, Layout
from fedqhd.envs.scaling import SPAN
from fedqhd.kernels.kinds import SYMBOLIC

LEVELS = 129
"""Number of levels. They cover [-SPAN, SPAN] of the scaled state; values beyond are clipped."""


class Symbolic(DrawnEncoder):
    """Level hypervectors, each bound to the role of its state variable, bundled with their joint binding.

    All variables share one memory of bipolar level hypervectors L_0..L_128. From one level to the next, each component
    is redrawn with probability 1 - exp(-step/sigma), so E[L_k * L_l] = exp(-|k-l| step / sigma). Variable j permutes
    the levels (rho^j, a cyclic shift by j) and binds them to its role: item_j(k) = role_j * rho^j(L_k). With k_j the
    level of s_j,

        Phi(s) = (item_1(k_1) + ... + item_n(k_n) + item_1(k_1) * ... * item_n(k_n)) / ((n + 1) sqrt(D)).

    The last term, the joint binding of all variables, lets Q depend on their interactions: without it Q would be a sum
    of functions of single variables. The kernel tends to (sum_j k_j + prod_j k_j) / (n+1)^2 with
    k_j = exp(-|level distance| / sigma). With n = 1, sum and product coincide and Phi = item_1 / sqrt(D).
    """

    name = "symbolic"
    layout: ClassVar[Layout] = {"items": (np.int8, ("n", LEVELS, "D")), "grid": (np.float32, (2,))}
    entry_bytes = LEVELS

    @classmethod
    def _draw(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> dict[str, Array]:
        bipolar = np.array([-1, 1], np.int8)
        step = 2 * SPAN / (LEVELS - 1)
        levels = np.empty((LEVELS, D), np.int8)
        levels[0] = rng.choice(bipolar, D)
        for k in range(1, LEVELS):
            anew = rng.random(D) < 1 - np.exp(-step / sigma)
            levels[k] = np.where(anew, rng.choice(bipolar, D), levels[k - 1])
        roles = rng.choice(bipolar, (n, D))
        items = np.stack([roles[j] * np.roll(levels, j, axis=1) for j in range(n)])
        return {"items": items, "grid": np.array([-SPAN, 1 / step], np.float32)}

    @staticmethod
    def limit_kernel(s: Array, t: Array, sigma: float) -> Array:
        step = 2 * SPAN / (LEVELS - 1)
        k = np.exp(-np.abs(level_of(s, -SPAN, 1 / step) - level_of(t, -SPAN, 1 / step)) * step / sigma)
        n = s.shape[-1]
        return k[..., 0] if n == 1 else (k.sum(axis=-1) + k.prod(axis=-1)) / (n + 1) ** 2

    @property
    def n(self) -> int:
        return int(self.arrays["items"].shape[0])

    @property
    def D(self) -> int:
        return int(self.arrays["items"].shape[2])

    def __call__(self, s: Array) -> Array:
        items = self.arrays["items"]
        # In float32 like the kernels, so that both choose the same level at a boundary.
        k = level_of(self.rows(s).astype(np.float32), *self.arrays["grid"])
        bound = np.stack([items[j, k[:, j]] for j in range(self.n)]).astype(np.float64)
        if self.n == 1:
            return bound[0] / np.sqrt(self.D)
        return (bound.sum(axis=0) + bound.prod(axis=0)) / ((self.n + 1) * np.sqrt(self.D))

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return SYMBOLIC, NO_OMEGA, self.arrays["grid"], self.arrays["items"]


def level_of(s: Array, first: float, per_unit: float) -> Array:
    """Return the nearest level of each value, from 0 to LEVELS - 1.

    `first` is the position of level 0, and `per_unit` the number of levels per unit of the scaled state.
    """
    return np.clip(np.floor((s - first) * per_unit + type(per_unit)(0.5)), 0, LEVELS - 1).astype(np.int64)
