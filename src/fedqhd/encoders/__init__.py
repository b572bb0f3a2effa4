"""Fixed maps from scaled states to hypervectors."""

from pathlib import Path

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_arrays
from fedqhd.core.protocols import Array, Payload
from fedqhd.encoders.adapters import OwnEncoder, own_encoder, rebuilt
from fedqhd.encoders.base import BaseEncoder, DrawnEncoder
from fedqhd.encoders.fourier import ComplexFourier, RandomFourier
from fedqhd.encoders.symbolic import Symbolic

ENCODERS: dict[str, type[DrawnEncoder]] = {e.name: e for e in (RandomFourier, ComplexFourier, Symbolic)}


def draw_encoder(name: str, n: int, D: int, sigma: float, rng: np.random.Generator, states: Array) -> BaseEncoder:
    """One of ours, or the user's own by `module:name`, which may want to be fitted on (scaled) states."""
    if ":" in name:
        return own_encoder(name, n, D, sigma, rng, states)
    return ENCODERS[name].sample(n, D, sigma, rng)


def from_arrays(name: str, arrays: Payload, fingerprint: str, source: str) -> BaseEncoder:
    """The encoder that was saved under `name`, refused if its arrays are not those that were saved."""
    if ":" in name:
        return rebuilt(name, arrays, fingerprint, source)
    if name not in ENCODERS:
        raise FedQHDError(f"{source} needs the encoder '{name}', and this version knows {', '.join(ENCODERS)}")
    encoder = ENCODERS[name](**arrays)
    if encoder.fingerprint() != fingerprint:
        raise damaged(source, "the encoder's fingerprint does not match its arrays")
    return encoder


def load_encoder(path: str | Path) -> BaseEncoder:
    arrays, about = read_arrays(path)
    return from_arrays(str(about.get("encoder")), arrays, str(about.get("fingerprint")), str(path))


__all__ = [
    "ENCODERS",
    "BaseEncoder",
    "ComplexFourier",
    "DrawnEncoder",
    "OwnEncoder",
    "RandomFourier",
    "Symbolic",
    "draw_encoder",
    "from_arrays",
    "load_encoder",
]
