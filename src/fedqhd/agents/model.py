"""Trained models: functions from scaled states to Q-values that need no learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged
from fedqhd.core.protocols import Array, Model, Payload, real_view, under
from fedqhd.encoders import BaseEncoder, from_arrays


class Readout:
    """The model Q = Re(Phi^H W) of an encoder and a readout W (D, A)."""

    kind: ClassVar[str] = "readout"

    def __init__(self, encoder: BaseEncoder, W: Array) -> None:
        if W.ndim != 2 or len(W) != encoder.D or W.dtype != encoder.dtype:
            raise FedQHDError(
                f"W is {W.dtype} of shape {W.shape}: an encoder of D={encoder.D} needs {np.dtype(encoder.dtype)} "
                f"of shape ({encoder.D}, A)"
            )
        self.encoder = encoder
        self.W = np.asfortranarray(W)
        self._rows = real_view(self.W)
        self._phi = np.zeros(self._rows.shape[1], np.float32)

    @property
    def n(self) -> int:
        return self.encoder.n

    @property
    def actions(self) -> int:
        return int(self.W.shape[1])

    def q(self, Z: Array) -> Array:
        if not self.encoder.fused:
            return (self.encoder(Z) @ self.W).real.astype(np.float32)
        Q = np.empty((len(Z), self.actions), np.float32)
        kernels.q_batch(*self.encoder.kernel_args(), Z, self._rows, self._phi, Q)
        return Q

    def arrays(self) -> dict[str, Array]:
        return {"W": self.W, **{f"encoder.{k}": v for k, v in self.encoder.arrays.items()}}

    def about(self) -> dict[str, Any]:
        return {"encoder": self.encoder.name, "fingerprint": self.encoder.fingerprint()}

    @classmethod
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> Readout:
        """Return the model of a file `source` with these arrays and this note."""
        encoder = from_arrays(about["encoder"], under(arrays, "encoder."), about["fingerprint"], source)
        return cls(encoder, arrays["W"])


class MLP:
    """The ReLU network of a DQN. `layers` are pairs of weights (out, in) and biases (out,)."""

    kind: ClassVar[str] = "mlp"

    def __init__(self, layers: Sequence[tuple[Array, Array]]) -> None:
        self.layers = [(np.ascontiguousarray(w.T, np.float32), np.asarray(b, np.float32)) for w, b in layers]

    @property
    def n(self) -> int:
        return len(self.layers[0][0])

    @property
    def actions(self) -> int:
        return len(self.layers[-1][1])

    def q(self, Z: Array) -> Array:
        *hidden, (W, b) = self.layers
        for weight, bias in hidden:
            Z = np.maximum(Z @ weight + bias, 0)
        return Z @ W + b

    def arrays(self) -> dict[str, Array]:
        return {f"{k}.{name}": x for k, (w, b) in enumerate(self.layers) for name, x in (("weight", w.T), ("bias", b))}

    def about(self) -> dict[str, Any]:
        return {"layers": len(self.layers)}

    @classmethod
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> MLP:
        """Return the model of a file `source` with these arrays and this note."""
        return cls([(arrays[f"{k}.weight"], arrays[f"{k}.bias"]) for k in range(about["layers"])])


MODELS: Mapping[str, type[Readout] | type[MLP]] = {m.kind: m for m in (Readout, MLP)}


def load_model(arrays: Payload, about: Mapping[str, Any], source: str) -> Model:
    """Return the model, of any kind, of a file `source` with these arrays and this note."""
    kind = about["kind"]
    if kind not in MODELS:
        raise damaged(source, f"it holds the unknown model {kind!r}")
    return MODELS[kind].load(arrays, about, source)
