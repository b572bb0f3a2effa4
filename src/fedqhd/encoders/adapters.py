"""Custom encoders: any callable (B, n) -> (B, D), a transformer of scikit-learn or a module of torch.

The name `module:name` refers to the map itself, to a function that makes it, or to a class of either library:

    def phi(s): ...                        the map, which is the same for every client
    def make(n, D, sigma, rng): ...        makes the map of a client; it may take fewer of the four arguments
    sklearn.kernel_approximation:Nystroem  made with n_components=D and gamma=1/(2 sigma^2), fitted to random rollouts
    torchhd.embeddings:Sinusoid            made with in_features=n and out_features=D

A saved encoder consists of its name, the state of its generator and the states it was fitted to. Loading makes the
encoder again and checks that it is the same map.
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
from fedqhd.core.protocols import Array, Payload
from fedqhd.encoders.base import NO_ITEMS, NO_OMEGA, NO_PHASE, BaseEncoder
from fedqhd.envs.scaling import SPAN
from fedqhd.kernels.kinds import PRECOMPUTED

Map = Callable[[Array], Any]

PROBES, SAVED_PROBES = 64, 8
"""Number of states whose features identify a map, and how many of these features are saved to recognise it."""
FAR = 1e3
"""Features must also be bounded at states that are this many times as far from the origin."""
SLACK = 1e-3
"""How far a norm may exceed 1, to allow for the rounding of sums of squares in single precision."""


class CustomEncoder(BaseEncoder):
    """A map that the user provides. Kernels cannot compute its features, so agents encode one state at a time.

    Args:
        name: Its name, `module:name`.
        phi: The map from scaled states (B, n) to features (B, D), real or complex.
        n: Number of state variables.
        recipe: The arrays from which `rebuild_encoder` makes the same map again.

    Raises:
        FedQHDError: If it is not a fixed map of single states whose features have a norm of at most 1.
    """

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
        super().__init__(probe=X[:SAVED_PROBES], **recipe)

    def _check(self, probes: Array, X: Array) -> None:
        """Check that the map is fixed, encodes each state by itself and is bounded far from the origin."""
        if not np.array_equal(self(probes).astype(self.dtype), X):
            raise FedQHDError(f"encoder={self.name!r} gives a state different features each time: give a fixed map")
        if not np.allclose(self(probes[:1]), X[:1], atol=1e-3):
            raise FedQHDError(
                f"encoder={self.name!r} gives the state {probes[0].tolist()} different features alone and in a batch: "
                "it must encode each state by itself"
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
                f"encoder={self.name!r} returns {X.dtype} of shape {X.shape} for states of shape {Z.shape}, the first "
                f"of which is {Z[:1].tolist()}: numbers of shape ({len(Z)}, {self._D or 'D'}) are needed"
            )
        X = np.ascontiguousarray(X, np.complex128 if np.iscomplexobj(X) else np.float64)
        norm = np.linalg.norm(X, axis=1)
        bad = ~(norm <= 1 + SLACK)  # also catches NaN
        if bad.any():
            worst = int(bad.argmax())
            raise FedQHDError(
                f"encoder={self.name!r} gives the scaled state {Z[worst].tolist()} features of norm {norm[worst]:.4g}: "
                "it must be finite and at most 1 at every state"
            )
        return X

    def features(self, s: Array) -> Array:
        """Encode one state at a time, because the bits of a row may depend on the other rows of its batch."""
        Z = self.rows(s)
        X: Array = np.empty((len(Z), self.D), self.dtype)
        for i in range(len(Z)):
            X[i] = self(Z[i : i + 1])[0].conj()
        return X.view(np.float32)

    def kernel_args(self) -> tuple[int, Array, Array, Array]:
        return PRECOMPUTED, NO_OMEGA, NO_PHASE, NO_ITEMS

    def fingerprint(self) -> str:
        return self._fingerprint


def custom_encoder(
    name: str, n: int, D: int, sigma: float, generator: np.random.Generator, states: Array
) -> BaseEncoder:
    """Return the encoder that `module:name` refers to; the arguments are those of `fedqhd.encoders.draw_encoder`.

    Transformers of scikit-learn are fitted to the states, and they and modules of torch are scaled to a norm of at
    most 1.
    """
    packed = rng.pack(generator)
    thing = _make(named.load(name, "encoder"), name, n, D, sigma, generator)
    if isinstance(thing, BaseEncoder):
        if thing.n != n:
            raise FedQHDError(f"encoder={name!r} is for {thing.n} state variables, but the environment has {n}")
        return thing
    if hasattr(thing, "fit") and hasattr(thing, "transform"):
        used, phi = states, bounded(_sklearn(thing, generator, states), states)
    elif hasattr(thing, "forward") and hasattr(thing, "parameters"):
        used, phi = states, bounded(_torch(thing), states)
    elif callable(thing):
        used, phi = states[:0], thing
    else:
        raise FedQHDError(f"encoder={name!r} is a {type(thing).__name__}: a map from states to features is needed")
    recipe = {"rng": packed, "shape": np.array([n, D]), "sigma": np.array(sigma), "states": used}
    return CustomEncoder(name, phi, n, recipe)


def rebuild_encoder(name: str, arrays: Payload, fingerprint: str, source: str) -> CustomEncoder:
    """Make a saved encoder again.

    Args:
        name: Its name, `module:name`.
        arrays: The arrays that were saved.
        fingerprint: The fingerprint that was saved; the encoder keeps it.
        source: The file, for error messages.

    Raises:
        FedQHDError: If `module:name` is a different map now, or the arrays are incomplete.
    """
    try:
        n, D = (int(k) for k in arrays["shape"])
        generator, sigma, saved = rng.unpack(arrays["rng"]), arrays["sigma"].item(), arrays["probe"]
        encoder = custom_encoder(name, n, D, sigma, generator, arrays["states"])
    except KeyError as error:
        raise damaged(source, f"{error} is missing") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise damaged(source, f"the arrays of its encoder cannot be used: {error}") from error
    if not isinstance(encoder, CustomEncoder):
        raise FedQHDError(f"encoder={name!r} is now a {encoder.name} encoder, not the map that {source} was saved with")
    probe = encoder.arrays["probe"]
    # Another machine may round differently, but a different map differs by far more.
    if probe.shape != saved.shape or not np.allclose(probe, saved, atol=1e-4):
        raise FedQHDError(f"encoder={name!r} is no longer the map that {source} was saved with: restore it")
    encoder._fingerprint = fingerprint
    return encoder


def _make(thing: Any, name: str, n: int, D: int, sigma: float, generator: np.random.Generator) -> Any:
    """Call a function or class that makes an encoder; return anything else as it is."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return thing
    takes = set(inspect.signature(thing).parameters)
    ours = {"n": n, "D": D, "sigma": sigma, "rng": generator}
    libraries: Mapping[str, Any] = {"n_components": D, "gamma": 1 / (2 * sigma**2), "in_features": n, "out_features": D}
    try:
        if takes and takes <= set(ours):
            return thing(**{k: v for k, v in ours.items() if k in takes})
        if inspect.isclass(thing):
            with seeded(generator):
                return thing(**{k: v for k, v in libraries.items() if k in takes})
    except FedQHDError:
        raise
    except Exception as error:
        raise FedQHDError(f"encoder={name!r} cannot be made for n={n}, D={D}, sigma={sigma:g}: {error!r}") from error
    return thing


class seeded:
    """A context that seeds the global generator of torch from ours and restores its state at the end."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.seed = int(generator.integers(2**31))

    def __enter__(self) -> None:
        self.torch = sys.modules.get("torch")
        if self.torch:
            self.before = self.torch.get_rng_state()
            self.torch.manual_seed(self.seed)

    def __exit__(self, *error: object) -> None:
        if self.torch:
            self.torch.set_rng_state(self.before)


def bounded(phi: Map, states: Array) -> Map:
    """Scale phi by its largest norm on the states; features whose norm is still above 1 are normalised."""
    most = float(np.linalg.norm(np.asarray(phi(states.astype(np.float64))), axis=1).max()) or 1.0

    def within(s: Array) -> Array:
        X = np.asarray(phi(s)) / most
        return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)

    return within


def _sklearn(thing: Any, generator: np.random.Generator, states: Array) -> Map:
    """Return the map of a transformer. One that is not fitted is copied, seeded if it has no seed, and fitted."""
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(thing)
    except NotFittedError:
        thing = clone(thing)
        if thing.get_params().get("random_state", 0) is None:
            thing.set_params(random_state=int(generator.integers(2**31)))
        thing.fit(np.asarray(states, np.float64))

    def phi(s: Array) -> Array:
        X = thing.transform(s)
        return np.asarray(X.toarray() if hasattr(X, "toarray") else X)

    return phi


def _torch(module: Any) -> Map:
    """Return the map of a torch module, such as an embedding of torchhd, without gradients."""
    import torch

    # Results depend on the number of threads, and a process that is forked after torch started threads hangs.
    torch.set_num_threads(1)
    module.eval()

    def phi(s: Array) -> Array:
        with torch.no_grad():
            X = module(torch.as_tensor(s, dtype=torch.float32)).as_subclass(torch.Tensor)
        return np.asarray((X if X.is_complex() else X.float()).cpu().numpy())

    return phi
