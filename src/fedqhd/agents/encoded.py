"""The features of the state that was seen last, which acting, learning and storing share."""

from __future__ import annotations

import numpy as np

from fedqhd import kernels
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder


class LastEncoded:
    """A state and Phi of it, so that a state is encoded once however often it is asked for.

    Kernels take `args`, `state` and `phi`, and bring the latter two up to date themselves where they can (`fused`).
    """

    __slots__ = ("args", "encoder", "fused", "phi", "state")

    def __init__(self, encoder: BaseEncoder) -> None:
        self.encoder, self.args, self.fused = encoder, encoder.kernel_args(), encoder.fused
        self.state: Array = np.full(encoder.n, np.nan, np.float32)
        self.phi: Array = np.zeros(encoder.D * (np.dtype(encoder.dtype).itemsize // 4), np.float32)
        """Complex components as real and imaginary parts in turn."""

    def forget(self) -> None:
        """The next state is encoded whatever it is."""
        self.state[:] = np.nan

    def encode_unfused(self, s: Array) -> None:
        """Make phi = Phi(s), unless it is, where no kernel can. Kernels then find that they have seen s."""
        if not np.array_equal(s, self.state):
            self.phi[:] = self.encoder.features(s[None])[0]
            self.state[:] = s

    def encode(self, s: Array) -> None:
        """Make phi = Phi(s), unless it is."""
        if not self.fused:
            self.encode_unfused(s)
        kernels.refresh(*self.args, s, self.state, self.phi)

    def store(self, s: Array, scale: np.float32, X: Array, row: int) -> None:
        """X[row] = Phi(s) / scale, rounded where X has whole numbers."""
        if not self.fused:
            self.encode_unfused(s)
        kernels.keep(*self.args, s, self.state, self.phi, scale, X, row)
