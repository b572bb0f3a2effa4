"""Trained models: functions from scaled states to Q-values or actions that need no learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged
from fedqhd.core.named import is_custom_name, load, name_of
from fedqhd.core.protocols import Array, Model, Payload, under
from fedqhd.encoders import BaseEncoder, from_arrays
from fedqhd.linalg.real_rows import real_view


class SavedModel:
    """The base class of models.

    A model of your own is a dataclass of arrays that derives from this class. It defines `n` and either `q`, from which
    greedy actions follow, or `act` and the `bounds` (2, k) of continuous actions.
    """

    kind: ClassVar[str] = ""
    bounds: Any = None

    @property
    def n(self) -> int:
        raise FedQHDError(f"the model {type(self).__name__} does not define n, the number of state variables")

    @property
    def actions(self) -> int:
        return int(self.q(np.zeros((1, self.n), np.float32)).shape[1] if self.bounds is None else len(self.bounds[0]))

    def q(self, Z: Array) -> Array:
        raise FedQHDError(f"the model {type(self).__name__} has no Q-values: it has only a policy")

    def act(self, Z: Array) -> Array:
        return self.q(Z).argmax(axis=1)

    def random_actions(self, generator: np.random.Generator, count: int) -> Array:
        if self.bounds is None:
            return generator.integers(self.actions, size=count)
        low, high = self.bounds
        return generator.uniform(low, high, size=(count, self.actions)).astype(np.float32)

    def arrays(self) -> dict[str, Array]:
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    def about(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> Self:
        """Return the model of a file `source` with these arrays and this note."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls)})  # type: ignore[arg-type]


class Readout(SavedModel):
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
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> Self:
        encoder = from_arrays(about["encoder"], under(arrays, "encoder."), about["fingerprint"], source)
        return cls(encoder, arrays["W"])


class MLP(SavedModel):
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
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> Self:
        return cls([(arrays[f"{k}.weight"], arrays[f"{k}.bias"]) for k in range(about["layers"])])


MODELS: Mapping[str, type[SavedModel]] = {m.kind: m for m in (Readout, MLP)}


def note_of(model: Model) -> dict[str, Any]:
    """Return the JSON values of a model's file, with the kind by which `load_model` finds its class."""
    return {"kind": model.kind or name_of(type(model)), **model.about()}


def load_model(arrays: Payload, about: Mapping[str, Any], source: str) -> Model:
    """Return the model, of any kind, of a file `source` with these arrays and this note."""
    kind = about["kind"]
    custom = load(kind, "model") if kind not in MODELS and is_custom_name(str(kind)) else None
    if kind not in MODELS and not (isinstance(custom, type) and issubclass(custom, SavedModel)):
        raise damaged(source, f"it holds the unknown model {kind!r}")
    return (custom or MODELS[kind]).load(arrays, about, source)
