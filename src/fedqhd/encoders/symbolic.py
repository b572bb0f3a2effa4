"""The symbolic HDC encoder: levels, roles, binding, permutation, bundling."""

from __future__ import annotations

import numpy as np

from fedqhd.core.protocols import SPAN, Array
from fedqhd.encoders.base import NO_OMEGA, DrawnEncoder
from fedqhd.kernels.kinds import SYMBOLIC

LEVELS = 129
"""They cover [-SPAN, SPAN] of the scaled state; values beyond are taken as the end."""


class Symbolic(DrawnEncoder):
    """Level hypervectors bound to a role per state variable, bundled with their joint binding.

    One memory of bipolar level hypervectors L_0..L_128 serves all variables. Going up a level, each
    component is drawn anew with probability 1 - exp(-step/sigma), so E[L_k * L_l] = exp(-|k-l| step / sigma).
    Variable j permutes it (rho^j, a cyclic shift by j) and binds it to a role:
    item_j(k) = role_j * rho^j(L_k). With k_j the level of s_j,

        Phi(s) = (item_1(k_1) + ... + item_n(k_n) + item_1(k_1) * ... * item_n(k_n)) / ((n + 1) sqrt(D)).

    The last term, all variables bound together, is what lets Q see their interactions: without it Q
    would be a sum of functions of single variables. The kernel tends to (sum_j k_j + prod_j k_j) / (n+1)^2
    with k_j = exp(-|level distance| / sigma). With n = 1 the two coincide and Phi = item_1 / sqrt(D).
    """

    name = "symbolic"

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
        # float32, as the kernels do it: at a boundary between two levels both must choose the same.
        k = level_of(self.rows(s).astype(np.float32), *self.arrays["grid"])
        bound = np.stack([items[j, k[:, j]] for j in range(self.n)]).astype(np.float64)
        if self.n == 1:
            return bound[0] / np.sqrt(self.D)
        return (bound.sum(axis=0) + bound.prod(axis=0)) / ((self.n + 1) * np.sqrt(self.D))

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return SYMBOLIC, NO_OMEGA, self.arrays["grid"], self.arrays["items"]


def level_of(s: Array, first: float, per_unit: float) -> Array:
    """The nearest level of each value, 0 to LEVELS - 1."""
    return np.clip(np.floor((s - first) * per_unit + type(per_unit)(0.5)), 0, LEVELS - 1).astype(np.int64)
