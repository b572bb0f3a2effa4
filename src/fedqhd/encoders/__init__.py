"""Fixed maps from scaled states to hypervectors."""

from pathlib import Path

from fedqhd.encoders.base import BaseEncoder
from fedqhd.encoders.fourier import ComplexFourier, RandomFourier
from fedqhd.encoders.symbolic import Symbolic
from fedqhd.files import damaged, read_arrays
from fedqhd.interfaces import FedQHDError, Payload

ENCODERS: dict[str, type[BaseEncoder]] = {e.name: e for e in (RandomFourier, ComplexFourier, Symbolic)}


def from_arrays(name: str, arrays: Payload, fingerprint: str, source: str) -> BaseEncoder:
    """The encoder that was saved under `name`, refused if its arrays are not those that were saved."""
    if name not in ENCODERS:
        raise FedQHDError(f"{source} needs the encoder '{name}', and this version knows {', '.join(ENCODERS)}")
    encoder = ENCODERS[name](**arrays)
    if encoder.fingerprint() != fingerprint:
        raise damaged(source, "the encoder's fingerprint does not match its arrays")
    return encoder


def load_encoder(path: str | Path) -> BaseEncoder:
    arrays, about = read_arrays(path)
    return from_arrays(str(about.get("encoder")), arrays, str(about.get("fingerprint")), str(path))


__all__ = ["ENCODERS", "BaseEncoder", "ComplexFourier", "RandomFourier", "Symbolic", "from_arrays", "load_encoder"]
