"""Encoders of the user's own: any callable (B, n) -> (B, D), a transformer of scikit-learn, a module of torch.

A name such as `module:name` stands for the map itself, for something that makes one, or for a class of either library:

    def phi(s): ...                        the map, the same for every client
    def make(n, D, sigma, rng): ...        makes a client's own; it may take fewer of the four
    sklearn.kernel_approximation:Nystroem  drawn with n_components=D, gamma=1/(2 sigma^2), fitted on random rollouts
    torchhd.embeddings:Sinusoid            drawn with in_features=n, out_features=D

What is saved is the name, the draw and the states it was fitted on: loading makes it again and compares.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedqhd.core import named, rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged
from fedqhd.core.protocols import SPAN, Array, Payload
from fedqhd.encoders.base import NO_ITEMS, NO_OMEGA, NO_PHASE, BaseEncoder
from fedqhd.kernels.kinds import GIVEN

Map = Callable[[Array], Any]

PROBES, KEPT = 64, 8
"""States at which a map is known by its values, and those of them that are kept to recognise it again."""
FAR = 1e3
"""How many times as far away features must still be bounded."""
SLACK = 1e-3
"""By which a norm may exceed 1: single precision, and sums of a thousand squares."""


class OwnEncoder(BaseEncoder):
    """A map of the user's own. Kernels cannot make its features, so agents ask for them one state at a time."""

    fused = False

    def __init__(self, name: str, phi: Map, n: int, recipe: Payload) -> None:
        self.name, self._phi, self._n, self._D = name, phi, n, 0
        probes = np.random.default_rng(0).uniform(-SPAN, SPAN, (PROBES, n)).astype(np.float32)
        X = self(probes)
        self._D = X.shape[1]
        self.dtype = np.complex64 if np.iscomplexobj(X) else np.float32
        X = X.astype(self.dtype)
        self._fingerprint = hashlib.sha256(X.tobytes()).hexdigest()[:32]
        self._check(probes, X)
        super().__init__(probe=X[:KEPT], **recipe)

    def _check(self, probes: Array, X: Array) -> None:
        """Whether it is a fixed map of single states, bounded however far away they are."""
        if not np.array_equal(self(probes).astype(self.dtype), X):
            raise FedQHDError(f"encoder={self.name!r} gives one state different features at different times: fix them")
        if not np.allclose(self(probes[:1]), X[:1], atol=1e-3):
            raise FedQHDError(
                f"encoder={self.name!r} gives the state {probes[0].tolist()} other features alone than among others"
            )
        self(FAR * probes)

    @property
    def n(self) -> int:
        return self._n

    @property
    def D(self) -> int:
        return self._D

    def __call__(self, s: Array) -> Array:
        Z = self.rows(s)
        X: Any = np.asarray(self._phi(Z))
        wanted = (len(Z), self._D or X.shape[-1] if X.ndim else 0)
        if X.shape != wanted or not X.size or X.dtype.kind not in "biufc":
            raise FedQHDError(
                f"encoder={self.name!r} makes {X.dtype} of shape {X.shape} of states of shape {Z.shape}, the first of "
                f"them {Z[:1].tolist()}: numbers of shape ({len(Z)}, {self._D or 'D'}) are needed"
            )
        X = np.ascontiguousarray(X, np.complex128 if np.iscomplexobj(X) else np.float64)
        norm = np.linalg.norm(X, axis=1)
        bad = ~(norm <= 1 + SLACK)  # NaN is not
        if bad.any():
            worst = int(bad.argmax())
            raise FedQHDError(
                f"encoder={self.name!r} gives the scaled state {Z[worst].tolist()} features of norm {norm[worst]:.4g}: "
                "it must be finite and at most 1 at every state"
            )
        return X

    def features(self, s: Array) -> Array:
        """One state at a time: alone or among others, bits would differ."""
        Z = self.rows(s)
        X: Array = np.empty((len(Z), self.D), self.dtype)
        for i in range(len(Z)):
            X[i] = self(Z[i : i + 1])[0].conj()
        return X.view(np.float32)

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return GIVEN, NO_OMEGA, NO_PHASE, NO_ITEMS

    def fingerprint(self) -> str:
        return self._fingerprint


def own_encoder(name: str, n: int, D: int, sigma: float, own: np.random.Generator, states: Array) -> BaseEncoder:
    """The encoder that `module:name` stands for, drawn by `own` and, if it learns from data, fitted on the states."""
    drawn = rng.pack(own)
    thing = _make(named.load(name, "encoder"), name, n, D, sigma, own)
    if isinstance(thing, BaseEncoder):
        if thing.n != n:
            raise FedQHDError(f"encoder={name!r} is for {thing.n} variables, and the environment has {n}")
        return thing
    if hasattr(thing, "fit") and hasattr(thing, "transform"):
        used, phi = states, bounded(_sklearn(thing, own, states), states)
    elif hasattr(thing, "forward") and hasattr(thing, "parameters"):
        used, phi = states, bounded(_torch(thing), states)
    elif callable(thing):
        used, phi = states[:0], thing
    else:
        raise FedQHDError(f"encoder={name!r} is a {type(thing).__name__}: a map from states to features is needed")
    recipe = {"rng": drawn, "shape": np.array([n, D]), "sigma": np.array(sigma), "states": used}
    return OwnEncoder(name, phi, n, recipe)


def rebuilt(name: str, arrays: Payload, fingerprint: str, source: str) -> OwnEncoder:
    """The encoder that was saved: made again by its name and draw, refused if it is not what it was."""
    try:
        n, D = (int(k) for k in arrays["shape"])
        own, sigma, kept = rng.unpack(arrays["rng"]), arrays["sigma"].item(), arrays["probe"]
        encoder = own_encoder(name, n, D, sigma, own, arrays["states"])
    except KeyError as error:
        raise damaged(source, f"{error} is missing") from error
    if not isinstance(encoder, OwnEncoder):
        raise FedQHDError(f"encoder={name!r} is now a {encoder.name} encoder, not the map that {source} was saved with")
    probe = encoder.arrays["probe"]
    # Another machine may round otherwise; another map differs by far more.
    if probe.shape != kept.shape or not np.allclose(probe, kept, atol=1e-4):
        raise FedQHDError(f"encoder={name!r} is not the map any more that {source} was saved with: restore it")
    encoder._fingerprint = fingerprint
    return encoder


def _make(thing: Any, name: str, n: int, D: int, sigma: float, own: np.random.Generator) -> Any:
    """Call what makes an encoder; whatever else comes back as it is."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return thing
    takes = set(inspect.signature(thing).parameters)
    ours = {"n": n, "D": D, "sigma": sigma, "rng": own}
    libraries: Mapping[str, Any] = {"n_components": D, "gamma": 1 / (2 * sigma**2), "in_features": n, "out_features": D}
    try:
        if takes and takes <= set(ours):
            return thing(**{k: v for k, v in ours.items() if k in takes})
        if inspect.isclass(thing):
            with seeded(own):
                return thing(**{k: v for k, v in libraries.items() if k in takes})
    except FedQHDError:
        raise
    except Exception as error:
        raise FedQHDError(f"encoder={name!r} cannot be made for n={n}, D={D}, sigma={sigma:g}: {error!r}") from error
    return thing


class seeded:
    """torch draws from a global generator: give it our seed, and what it had back afterwards."""

    def __init__(self, own: np.random.Generator) -> None:
        self.seed = int(own.integers(2**31))

    def __enter__(self) -> None:
        self.torch = sys.modules.get("torch")
        if self.torch:
            self.before = self.torch.get_rng_state()
            self.torch.manual_seed(self.seed)

    def __exit__(self, *error: object) -> None:
        if self.torch:
            self.torch.set_rng_state(self.before)


def bounded(phi: Map, states: Array) -> Map:
    """phi divided by its largest norm on the states and, where it is larger still, by its norm: never above 1."""
    most = float(np.linalg.norm(np.asarray(phi(states.astype(np.float64))), axis=1).max()) or 1.0

    def within(s: Array) -> Array:
        X = np.asarray(phi(s)) / most
        return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)

    return within


def _sklearn(thing: Any, own: np.random.Generator, states: Array) -> Map:
    """A transformer, as it is if it was fitted, else a copy that we fit; it draws by our seed unless it has its own."""
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(thing)
    except NotFittedError:
        thing = clone(thing)
        if thing.get_params().get("random_state", 0) is None:
            thing.set_params(random_state=int(own.integers(2**31)))
        thing.fit(np.asarray(states, np.float64))

    def phi(s: Array) -> Array:
        X = thing.transform(s)
        return np.asarray(X.toarray() if hasattr(X, "toarray") else X)

    return phi


def _torch(module: Any) -> Map:
    """A module of torch, such as torchhd's embeddings, without its gradients."""
    import torch

    # Bits depend on the number of threads, and a worker process that is forked after torch made some waits for ever.
    torch.set_num_threads(1)
    module.eval()

    def phi(s: Array) -> Array:
        with torch.no_grad():
            X = module(torch.as_tensor(s, dtype=torch.float32)).as_subclass(torch.Tensor)
        return np.asarray((X if X.is_complex() else X.float()).cpu().numpy())

    return phi
