"""The features of the last encoded state, which acting, learning and storing share."""

from __future__ import annotations

import numpy as np

from fedqhd import kernels
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder


class LastEncoded:
    """A cache of the last state and its features, so that a state is encoded only once.

    Kernels take `args`, `state` and `phi`, and update the latter two themselves if they can compute the features of the
    encoder (`fused`).
    """

    __slots__ = ("args", "encoder", "fused", "phi", "state")

    def __init__(self, encoder: BaseEncoder) -> None:
        self.encoder, self.args, self.fused = encoder, encoder.kernel_args(), encoder.fused
        self.state: Array = np.full(encoder.n, np.nan, np.float32)
        self.phi: Array = np.zeros(encoder.D * (np.dtype(encoder.dtype).itemsize // 4), np.float32)
        """The features (R,), complex components as interleaved real and imaginary parts."""

    def forget(self) -> None:
        """Empty the cache."""
        self.state[:] = np.nan

    def encode_unfused(self, s: Array) -> None:
        """Update the cache for a state s (n,) without a kernel; kernels then find s in the cache."""
        if not np.array_equal(s, self.state):
            self.phi[:] = self.encoder.features(s[None])[0]
            self.state[:] = s

    def encode(self, s: Array) -> None:
        """Update the cache for a state s (n,)."""
        if not self.fused:
            self.encode_unfused(s)
        kernels.refresh(*self.args, s, self.state, self.phi)

    def store(self, s: Array, scale: np.float32, X: Array, row: int) -> None:
        """Write Phi(s) / scale to X[row], rounded if X is int8, and update the cache."""
        if not self.fused:
            self.encode_unfused(s)
        kernels.store_features(*self.args, s, self.state, self.phi, scale, X, row)
