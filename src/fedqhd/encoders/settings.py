"""The settings of encoders, and the encoder of each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.encoders import ENCODERS, BaseEncoder, Offsets, draw_encoder


@dataclass(frozen=True)
class EncoderSettings(Settings):
    """The encoders of a run. In the homogeneous setting, `encoder` and `dims` have one entry."""

    title: ClassVar[str] = "encoders"

    encoder: tuple[str, ...] = setting(
        ("fourier",),
        "encoders, one for all clients (homogeneous) or cycled (heterogeneous); a custom one is module:name",
        choices=ENCODERS,
        custom=True,
        cycled=True,
    )
    dims: tuple[int, ...] = setting(
        (1000,), "dimensions D_i, one for all clients (homogeneous) or cycled (heterogeneous)", cycled=True
    )
    sigma: float = setting(1.5, "bandwidth of the encoder, in units of the scaled state", above=0)
    sigma_spread: float = setting(
        0.5, "sigma_i = sigma * U[1 - spread, 1 + spread]", at_least=0, below=1, only={"setting": "heterogeneous"}
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(len(c.encoder) > 0, "encoder", "give at least one")
        need(len(c.dims) > 0, "dims", "give dimensions of at least 1")
        grids = [name for name in c.encoder if name in ENCODERS and issubclass(ENCODERS[name], Offsets)]
        need(not grids or c.scaling == "none", "scaling",
             f"encoder={grids[0] if grids else ''} reads the cells of a grid as they are: give none")  # fmt: skip


def dimension(c: Config, client: int, pooled: bool = False) -> int:
    """Return D of a client's encoder; the single agent of an oracle (`pooled`) has the largest."""
    return max(c.dims) if pooled else c.dims[client % len(c.dims)]


def real_features(c: Config, D: int) -> int:
    """Return how many real numbers a hypervector of dimension D has; a complex component counts twice."""
    return 2 * D if "complex" in c.encoder else D


def encoder_bytes(c: Config, n: int, D: int) -> int:
    """Return the bytes of the arrays of an encoder; the largest kind counts, and a custom one counts as floats."""
    return n * D * max(ENCODERS[name].entry_bytes if name in ENCODERS else 4 for name in c.encoder)


def encoder_of(
    c: Config, client: int, states: Array, pooled: bool = False, grid: tuple[int, int, int] | None = None
) -> BaseEncoder:
    """Draw the encoder of a client.

    In the homogeneous setting all clients have the same encoder. In the heterogeneous setting each has its own D_i,
    sigma_i and draw, and the kinds of encoders are cycled.

    Args:
        c: The settings of the run.
        client: The number of the client.
        states: Scaled states (k, n) to which a custom encoder may be fitted.
        pooled: Whether this is the single agent of an oracle, which has the largest D_i, and sigma as it is set.
        grid: The shape (H, W, C) of the grid that a state is made from, or None.
    """
    shared = c.setting == "homogeneous"
    # A client of its own on the network has a seed that only it knows, so that nobody can draw its encoder again.
    seed = c.seed if shared else c.get("encoder_seed", c.seed)
    generator = rng.generator(seed, rng.PUBLIC if shared else client, "encoder")
    sigma = c.sigma if shared or pooled else c.sigma * generator.uniform(1 - c.sigma_spread, 1 + c.sigma_spread)
    name = c.encoder[0 if shared or pooled else client % len(c.encoder)]
    return draw_encoder(name, states.shape[1], dimension(c, client, pooled), sigma, generator, states, grid)


def small_encoders(c: Config) -> list[BaseEncoder]:
    """Return a small encoder of each built-in kind that a run uses, for compiling the kernels."""
    names = sorted(set(c.encoder) & set(ENCODERS))
    return [ENCODERS[name].sample(1, 8, 1.0, np.random.default_rng(0)) for name in names]
