"""What every encoder shares: its arrays are its identity, its file and its kernel arguments."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_arrays
from fedqhd.core.protocols import Array

# What a kernel is given for an array that an encoder does not have.
NO_OMEGA = np.zeros((0, 0), np.float32)
NO_PHASE = np.zeros(0, np.float32)
NO_ITEMS = np.zeros((0, 0, 0), np.int8)


class BaseEncoder(ABC):
    """A fixed encoder and the named arrays that it is kept by. Subclasses say what the arrays mean."""

    name: str
    dtype: type = np.float32
    """Of the readout W that goes with it."""
    fused: ClassVar[bool] = True
    """Whether kernels make its features."""

    def __init__(self, **arrays: Array) -> None:
        self.arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        for value in self.arrays.values():
            value.flags.writeable = False

    @property
    @abstractmethod
    def n(self) -> int: ...

    @property
    @abstractmethod
    def D(self) -> int: ...

    @abstractmethod
    def __call__(self, s: Array) -> Array: ...

    @abstractmethod
    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        """(kind, Omega, b, items) as `fedqhd.kernels` takes them."""

    def rows(self, s: Array) -> Array:
        """The states as a float64 (B, n) array, or one sentence on why they are none."""
        s = np.asarray(s, dtype=np.float64)
        if s.ndim != 2 or s.shape[1] != self.n:
            raise FedQHDError(
                f"states of shape {s.shape} do not fit an encoder of {self.n} variables: give (B, {self.n})"
            )
        return s

    def features(self, s: Array) -> Array:
        """Phi(s) as the kernels make it: float32 (B, R), complex components as real and imaginary parts in turn."""
        Z = np.ascontiguousarray(self.rows(s), np.float32)
        X = np.empty((len(Z), self.D * (np.dtype(self.dtype).itemsize // 4)), np.float32)
        kernels.encode_batch(*self.kernel_args(), Z, X)
        return X

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.name.encode())
        for key in sorted(self.arrays):
            value = self.arrays[key]
            digest.update(f"|{key}{value.dtype.str}{value.shape}".encode())
            digest.update(value.tobytes())
        return digest.hexdigest()[:32]

    def save(self, path: str | Path) -> None:
        write_arrays(path, self.arrays, {"encoder": self.name, "fingerprint": self.fingerprint()})


class DrawnEncoder(BaseEncoder):
    """An encoder that is drawn at random, of any dimension, and approaches a kernel as that grows."""

    @classmethod
    def sample(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> Self:
        """Draw an encoder of n state variables and dimension D with bandwidth sigma."""
        check_shape(n, D, sigma)
        return cls(**cls._draw(n, D, sigma, rng))

    @classmethod
    @abstractmethod
    def _draw(cls, n: int, D: int, sigma: float, rng: np.random.Generator) -> dict[str, Array]: ...

    @staticmethod
    @abstractmethod
    def limit_kernel(s: Array, t: Array, sigma: float) -> Array:
        """What Re <Phi(s), Phi(t)> tends to as D grows, for each pair of rows."""


def check_shape(n: int, D: int, sigma: float) -> None:
    if n <= 0 or D <= 0:
        raise FedQHDError(f"an encoder of {n} variables and D={D} cannot be: both must be at least 1")
    if not (np.isfinite(sigma) and sigma > 0):
        raise FedQHDError(f"sigma={sigma} must be a positive number")
