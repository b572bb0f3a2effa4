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
from fedqhd.core.trust import is_code
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

    def in_kernel(self) -> Any:
        """Return this model as a record of `fedqhd.kernels.records`, or None if no kernel plays it."""
        return None

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
            return (self.encoder.matrix(Z) @ self.W).real.astype(np.float32)
        Q = np.empty((len(Z), self.actions), np.float32)
        kernels.q_batch(*self.encoder.kernel_args(), Z, self._rows, self._phi, Q)
        return Q

    def in_kernel(self) -> Any:
        if not self.encoder.fused:
            return None
        return kernels.Greedy(
            *self.encoder.kernel_args(), self._phi, self._rows, np.empty((1, self.actions), np.float32)
        )

    def arrays(self) -> dict[str, Array]:
        return {"W": self.W, **{f"encoder.{k}": v for k, v in self.encoder.arrays.items()}}

    def about(self) -> dict[str, Any]:
        return {"encoder": self.encoder.name, "fingerprint": self.encoder.fingerprint()}

    @classmethod
    def load(cls, arrays: Payload, about: Mapping[str, Any], source: str) -> Self:
        encoder = from_arrays(about["encoder"], under(arrays, "encoder."), about["fingerprint"], source)
        W = arrays["W"]
        if W.ndim != 2 or len(W) != encoder.D or W.dtype != encoder.dtype or not W.size:
            raise damaged(source, f"W is {W.dtype} of shape {W.shape}, which does not fit its encoder")
        return cls(encoder, W)


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
        count = about["layers"]
        if type(count) is not int or count < 1:
            raise damaged(source, f"layers={count!r:.80} is not a positive integer")
        layers = [(arrays[f"{k}.weight"], arrays[f"{k}.bias"]) for k in range(count)]
        n = layers[0][0].shape[-1:]
        for weight, bias in layers:
            for x in (weight, bias):
                if x.dtype != np.float32:
                    raise damaged(source, f"a layer is {x.dtype}, and float32 is needed")
            if weight.ndim != 2 or not weight.size or weight.shape[1:] != n or bias.shape != weight.shape[:1]:
                raise damaged(source, f"a layer of shapes {weight.shape} and {bias.shape} does not fit the others")
            n = bias.shape
        return cls(layers)


MODELS: Mapping[str, type[SavedModel]] = {m.kind: m for m in (Readout, MLP)}


def note_of(model: Model) -> dict[str, Any]:
    """Return the JSON values of a model's file, with the kind by which `load_model` finds its class."""
    return {"kind": model.kind or name_of(type(model)), **model.about()}


def code_names(about: Mapping[str, Any]) -> list[str]:
    """Return the names of code, `module:name`, in the note of a model or policy."""
    found = [about.get(key) for key in ("kind", "encoder", "env")]
    return [name for name in found if isinstance(name, str) and is_code(name)]


def load_model(arrays: Payload, about: Mapping[str, Any], source: str) -> Model:
    """Return the model, of any kind, of a file `source` with these arrays and this note.

    The caller has checked that the code that the note names (`code_names`) is trusted.

    Raises:
        DamagedFile: If the arrays or the note are not those of a model.
    """
    kind = about.get("kind")
    custom = load(kind, "model") if isinstance(kind, str) and kind not in MODELS and is_custom_name(kind) else None
    if not isinstance(kind, str) or (kind not in MODELS and not _is_model(custom)):
        raise damaged(source, f"it holds the unknown model {kind!r:.80}")
    for name, x in arrays.items():
        if x.dtype.kind in "fc" and not np.isfinite(x).all():
            raise damaged(source, f"its {name!r:.80} has a value that is not finite")
    try:
        return (custom or MODELS[kind]).load(arrays, about, source)
    except KeyError as error:
        raise damaged(source, f"{error} is missing") from error
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise damaged(source, f"its arrays or its note are not those of a model: {error}") from error


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, SavedModel)
