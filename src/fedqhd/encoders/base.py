"""The base classes of encoders. An encoder is defined by arrays, which are hashed, saved and passed to the kernels."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_arrays
from fedqhd.core.protocols import Array, Payload

# Kernels receive these in place of arrays that an encoder does not have.
NO_OMEGA = np.zeros((0, 0), np.float32)
NO_PHASE = np.zeros(0, np.float32)
NO_ITEMS = np.zeros((0, 0, 0), np.int8)

Layout = Mapping[str, tuple[type, tuple[str | int, ...]]]
"""The type and the shape of each array of an encoder. A shape consists of numbers and of names of sizes, n and D."""


class BaseEncoder(ABC):
    """A fixed encoder, defined by named arrays whose meaning the subclass decides."""

    name: str
    """The name by which users choose the encoder."""
    dtype: type = np.float32
    """The type of the readout W."""
    fused: ClassVar[bool] = True
    """Whether kernels compute its features."""
    is_sparse: ClassVar[bool] = False
    """Whether few components of a hypervector differ from 0, so that `matrix` returns a sparse one."""

    def __init__(self, **arrays: Array) -> None:
        self.arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        for value in self.arrays.values():
            value.flags.writeable = False

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of state variables."""

    @property
    @abstractmethod
    def D(self) -> int:
        """Dimension of the hypervector."""

    @abstractmethod
    def __call__(self, s: Array) -> Array:
        """Encode states (B, n) as X (B, D) in double precision. Row l is Phi(s_l)^H, so Q = Re(X W)."""

    def matrix(self, s: Array) -> Any:
        """Encode states as `__call__` does; an encoder that is sparse returns a sparse matrix of scipy."""
        return self(s)

    @abstractmethod
    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        """Return the arguments (kind, Omega, b, items) of the kernels; see `fedqhd.kernels.encode`."""

    def rows(self, s: Array) -> Array:
        """Return the states as a float64 array (B, n). Raises FedQHDError if they have another shape."""
        s = np.asarray(s, dtype=np.float64)
        if s.ndim != 2 or s.shape[1] != self.n:
            raise FedQHDError(
                f"states of shape {s.shape} do not fit an encoder of {self.n} state variables: give (B, {self.n})"
            )
        return s

    def features(self, s: Array) -> Array:
        """Return Phi(s) as the kernels compute it, float32 (B, R); complex components are pairs of real numbers."""
        Z = np.ascontiguousarray(self.rows(s), np.float32)
        X = np.empty((len(Z), self.D * (np.dtype(self.dtype).itemsize // 4)), np.float32)
        kernels.encode_batch(*self.kernel_args(), Z, X)
        return X

    def fingerprint(self) -> str:
        """Return a hash of the name and the arrays."""
        digest = hashlib.sha256(self.name.encode())
        for key in sorted(self.arrays):
            value = self.arrays[key]
            digest.update(f"|{key}{value.dtype.str}{value.shape}".encode())
            digest.update(value.tobytes())
        return digest.hexdigest()[:32]

    def save(self, path: str | Path) -> None:
        """Save the encoder to a file that `fedqhd.encoders.load_encoder` reads."""
        write_arrays(path, self.arrays, {"encoder": self.name, "fingerprint": self.fingerprint()})


class DrawnEncoder(BaseEncoder):
    """A random encoder of any dimension, whose inner products approach a kernel as the dimension grows."""

    layout: ClassVar[Layout]
    entry_bytes: ClassVar[int] = 4
    """The bytes of its arrays for each state variable and component of the hypervector."""

    @classmethod
    def check_arrays(cls, arrays: Payload) -> None:
        """Raise ValueError unless arrays of a file have the types and shapes that the kernels rely on."""
        if arrays.keys() != cls.layout.keys():
            raise ValueError(f"an encoder {cls.name!r} consists of {', '.join(cls.layout)}, not {', '.join(arrays)}")
        sizes: dict[str | int, int] = {}
        for name, (dtype, dims) in cls.layout.items():
            x = arrays[name]
            right = x.dtype == dtype and x.ndim == len(dims) and x.size > 0 and bool(np.isfinite(x).all())
            if not (right and all(k == (sizes.setdefault(d, k) if isinstance(d, str) else d)
                                  for d, k in zip(dims, x.shape, strict=True))):  # fmt: skip
                shape = ", ".join(map(str, dims))
                raise ValueError(
                    f"the encoder's {name} is {x.dtype} of shape {x.shape}, and finite {np.dtype(dtype)} of shape "
                    f"({shape}) is needed"
                )

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
        """Return the limit of Re <Phi(s), Phi(t)> for growing D, for each pair of rows of s and t (B, n)."""


def check_shape(n: int, D: int, sigma: float) -> None:
    """Raise FedQHDError unless there can be an encoder of these sizes and this bandwidth."""
    if n <= 0 or D <= 0:
        raise FedQHDError(f"an encoder of n={n} state variables and D={D} is not possible: both must be at least 1")
    if not (np.isfinite(sigma) and sigma > 0):
        raise FedQHDError(f"sigma={sigma} must be a positive number")
