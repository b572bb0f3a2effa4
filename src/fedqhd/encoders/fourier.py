"""Random Fourier encoders: the real one of the paper and a complex one.

Hyperdimensional computing knows the complex encoder as fractional power binding: one phase hypervector for each state
variable, bound by multiplication.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.core.protocols import Array
from fedqhd.encoders.base import NO_ITEMS, NO_PHASE, DrawnEncoder, Layout
from fedqhd.kernels.kinds import COMPLEX, FOURIER

TURN = 2 * np.pi


def gaussian_kernel(s: Array, t: Array, sigma: float) -> Array:
    """Return exp(-|s - t|^2 / (2 sigma^2)) for each pair of rows."""
    return np.exp(-np.sum((s - t) ** 2, axis=-1) / (2 * sigma**2))


class _Fourier(DrawnEncoder):
    """Encoders with frequencies Omega (n, D) ~ N(0, 1/sigma^2), stored in turns instead of radians for the kernels."""

    @property
    def n(self) -> int:
        return int(self.arrays["Omega"].shape[0])

    @property
    def D(self) -> int:
        return int(self.arrays["Omega"].shape[1])

    @staticmethod
    def _frequencies(n: int, D: int, sigma: float, rng: np.random.Generator) -> Array:
        return rng.normal(0.0, 1.0 / (TURN * sigma), (n, D)).astype(np.float32)

    def turns(self, s: Array) -> Array:
        """Return Omega^T s for each state, in turns, (B, D)."""
        return self.rows(s) @ self.arrays["Omega"].astype(np.float64)


class RandomFourier(_Fourier):
    """Phi(s) = D^-1/2 cos(Omega^T s + b), Omega ~ N(0, 1/sigma^2), b ~ U[0, 2 pi).

    The kernel <Phi(s), Phi(t)> tends to exp(-|s-t|^2 / (2 sigma^2)) / 2.
    """

    name = "fourier"
    layout: ClassVar[Layout] = {"Omega": (np.float32, ("n", "D")), "b": (np.float32, ("D",))}

    @classmethod
    def _draw(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> dict[str, Array]:
        return {"Omega": cls._frequencies(n, D, sigma, rng), "b": rng.random(D, dtype=np.float32)}

    @staticmethod
    def limit_kernel(s: Array, t: Array, sigma: float) -> Array:
        return gaussian_kernel(s, t, sigma) / 2

    def __call__(self, s: Array) -> Array:
        T = self.turns(s)
        T += self.arrays["b"]
        kernels.cosines(T, 1 / np.sqrt(self.D))
        return T

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return FOURIER, self.arrays["Omega"], self.arrays["b"], NO_ITEMS


class ComplexFourier(_Fourier):
    """Phi(s) = D^-1/2 exp(i Omega^T s), Omega ~ N(0, 1/sigma^2); rows of X are Phi^H.

    The kernel Re <Phi(s), Phi(t)> tends to exp(-|s-t|^2 / (2 sigma^2)).
    """

    name = "complex"
    layout: ClassVar[Layout] = {"Omega": (np.float32, ("n", "D"))}
    dtype = np.complex64

    @classmethod
    def _draw(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> dict[str, Array]:
        return {"Omega": cls._frequencies(n, D, sigma, rng)}

    @staticmethod
    def limit_kernel(s: Array, t: Array, sigma: float) -> Array:
        return gaussian_kernel(s, t, sigma)

    def __call__(self, s: Array) -> Array:
        T = self.turns(s)
        parts = np.stack([T, T + 0.25], axis=-1)  # -sin is a quarter of a turn ahead
        kernels.cosines(parts, 1 / np.sqrt(self.D))
        return parts.view(np.complex128)[..., 0]

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return COMPLEX, self.arrays["Omega"], NO_PHASE, NO_ITEMS
