"""Fixed maps from scaled states to hypervectors."""

from pathlib import Path

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, read_arrays
from fedqhd.core.protocols import Array, Payload
from fedqhd.core.trust import check_code, grant
from fedqhd.encoders.adapters import CustomEncoder, custom_encoder, rebuild_encoder
from fedqhd.encoders.base import BaseEncoder, DrawnEncoder
from fedqhd.encoders.fourier import ComplexFourier, RandomFourier
from fedqhd.encoders.offsets import Offsets, Triples
from fedqhd.encoders.symbolic import Symbolic

ENCODERS: dict[str, type[DrawnEncoder]] = {
    e.name: e for e in (RandomFourier, ComplexFourier, Symbolic, Offsets, Triples)
}


def draw_encoder(
    name: str,
    n: int,
    D: int,
    sigma: float,
    rng: np.random.Generator,
    states: Array,
    grid: tuple[int, int, int] | None = None,
) -> BaseEncoder:
    """Draw an encoder.

    Args:
        name: The name of a built-in encoder, or `module:name` for a custom one.
        n: Number of state variables.
        D: Dimension of the hypervectors.
        sigma: Bandwidth, in units of the scaled state.
        rng: The generator of the draw.
        states: Scaled states (k, n) to which a custom encoder may be fitted.
        grid: The shape (H, W, C) of the grid that a state is made from, or None.
    """
    if ":" in name:
        return custom_encoder(name, n, D, sigma, rng, states)
    kind = ENCODERS[name]
    if issubclass(kind, Offsets):
        if grid is None:
            raise FedQHDError(
                f"encoder={name} encodes grids, such as those of MinAtar, but a state of this environment is a vector "
                f"of {n} numbers: choose another encoder"
            )
        return kind.for_grid(grid, D, rng)
    return kind.sample(n, D, sigma, rng)


def from_arrays(name: str, arrays: Payload, fingerprint: str, source: str) -> BaseEncoder:
    """Return the encoder that was saved to `source`. Raises FedQHDError if it does not have the fingerprint."""
    if not isinstance(name, str) or not isinstance(fingerprint, str):
        raise damaged(source, "the name or the fingerprint of its encoder is not text")
    if ":" in name:
        return rebuild_encoder(name, arrays, fingerprint, source)
    if name not in ENCODERS:
        raise FedQHDError(f"{source} needs the encoder {name!r:.80}, but this version only has {', '.join(ENCODERS)}")
    try:
        ENCODERS[name].check_arrays(arrays)
    except ValueError as error:
        raise damaged(source, str(error)) from error
    encoder = ENCODERS[name](**arrays)
    if encoder.fingerprint() != fingerprint:
        raise damaged(source, "the encoder's fingerprint does not match its arrays")
    return encoder


def load_encoder(path: str | Path, trust: bool = False) -> BaseEncoder:
    """Load an encoder from a file that its method `save` wrote.

    Args:
        path: The file.
        trust: Whether to import the code that the file of a custom encoder names.

    Raises:
        FedQHDError: If the file is damaged, or names code that is not trusted.
    """
    arrays, about = read_arrays(path)
    if trust:
        grant(path)
    check_code([str(about.get("encoder"))], Path(path))
    return from_arrays(str(about.get("encoder")), arrays, str(about.get("fingerprint")), str(path))


__all__ = [
    "ENCODERS",
    "BaseEncoder",
    "ComplexFourier",
    "CustomEncoder",
    "DrawnEncoder",
    "Offsets",
    "RandomFourier",
    "Symbolic",
    "Triples",
    "draw_encoder",
    "from_arrays",
    "load_encoder",
]
