"""One numpy Generator for each (seed, client, purpose). The package uses no global random state."""

from __future__ import annotations

import ctypes
import zlib

import numpy as np

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array

PUBLIC = -1
"""The client number for draws that all clients share: the scaler, the anchors, a common encoder."""


def _sequence(seed: int, client: int, purpose: str, index: int = 0) -> np.random.SeedSequence:
    if seed < 0:
        raise FedQHDError(f"seed={seed} is not possible: it must be at least 0")
    return np.random.SeedSequence([seed, client + 1, zlib.crc32(purpose.encode()), index])


def generator(seed: int, client: int, purpose: str) -> np.random.Generator:
    """Return the generator of one client for one purpose, which is independent of its other generators."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, client, purpose)))


def env_seed(seed: int, client: int, purpose: str, episode: int) -> int:
    """Return the seed with which to reset an environment, so that an episode does not depend on earlier ones."""
    return int(_sequence(seed, client, purpose, episode).generate_state(1)[0] >> 1)


def addresses(rng: np.random.Generator) -> tuple[int, int]:
    """Return the address of the function that draws uniform numbers from a generator, and that of its argument.

    A kernel that calls it draws the numbers that `random()` would draw. The generator must live longer than its use.
    """
    interface = rng.bit_generator.ctypes
    return ctypes.cast(interface.next_double, ctypes.c_void_p).value or 0, interface.state_address


def pack(rng: np.random.Generator) -> Array:
    """Return the state of a PCG64 generator as six 64-bit words, which any file format can hold."""
    state = rng.bit_generator.state
    words = [state["state"]["state"], state["state"]["inc"]]
    split = [w >> shift & 0xFFFFFFFFFFFFFFFF for w in words for shift in (64, 0)]
    return np.array([*split, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def unpack(words: Array) -> np.random.Generator:
    """Return a generator in the state that `pack` returned."""
    s_hi, s_lo, i_hi, i_lo, has_uint32, uinteger = (int(w) for w in words)
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": s_hi << 64 | s_lo, "inc": i_hi << 64 | i_lo},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return rng
