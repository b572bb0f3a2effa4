"""Features Phi(z) of an encoder.

An encoder is passed as `(kind, Omega, b, items)`; the arrays that its kind does not use are empty.

FOURIER      Phi_d = D^-1/2 cos(2 pi (z . Omega_d + b_d)), Omega and b in turns, not radians
COMPLEX      Phi_d = D^-1/2 exp(2 pi i z . Omega_d), stored as interleaved (cos, sin)
SYMBOLIC     bundle of the n bound items[j, level_j] and of their joint binding (their product)
PRECOMPUTED  any other encoder: the caller has already written Phi, and nothing is computed here
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit
from fedqhd.kernels.fourier import add_turns, cos_turns, eight_variables, four_states, four_variables
from fedqhd.kernels.kinds import FOURIER, PRECOMPUTED, SYMBOLIC

BLOCK = 1024
"""Components of Phi that are computed at a time, so that they stay in the first-level cache until they are used."""

f32 = np.float32
_ZERO, _QUARTER, _HALF, _ONE = f32(0.0), f32(0.25), f32(0.5), f32(1.0)


@jit(inline="always")
def dimension(kind, Omega, items):
    """Return D, the number of (real or complex) components of Phi."""
    return items.shape[2] if kind == SYMBOLIC else Omega.shape[1]


@jit
def _symbolic(z, b, items, lo, hi, out):
    """Write the bundle of the bound levels and their product to out. b = (position of level 0, levels per unit)."""
    n, last, width = z.shape[0], items.shape[1] - 1, hi - lo
    product = np.ones(width, np.float32)
    for j in range(n):
        level = min(max(int(np.floor((z[j] - b[0]) * b[1] + _HALF)), 0), last)
        item = items[j, level, lo:hi]
        for d in range(width):
            v = f32(item[d])
            out[d] += v
            product[d] *= v
    terms = n + 1 if n > 1 else 1
    scale = _ONE / (f32(terms) * np.sqrt(f32(items.shape[2])))
    both = _ONE if n > 1 else _ZERO
    for d in range(width):
        out[d] = scale * (out[d] + both * product[d])


@jit
def encode_block(kind, z, Omega, b, items, lo, hi, out):
    """Write components lo to hi of Phi(z) to out[0:]; complex ones as interleaved pairs."""
    width = hi - lo
    if kind == PRECOMPUTED:
        return
    if kind == SYMBOLIC:
        out[:width] = _ZERO
        _symbolic(z, b, items, lo, hi, out)
        return
    scale = _ONE / np.sqrt(f32(Omega.shape[1]))
    if kind == FOURIER:
        last = (z.shape[0] - 1) // 8 * 8
        if last:
            turns = b[lo:hi].copy()
            add_turns(z[:last], Omega, lo, hi, turns)
            eight_variables(turns, z, Omega, last, lo, hi, scale, out)
        elif z.shape[0] <= 4:
            four_variables(b[lo:hi], z, Omega, lo, hi, scale, out)
        else:
            eight_variables(b[lo:hi], z, Omega, last, lo, hi, scale, out)
    else:
        turns = np.zeros(width, np.float32)
        add_turns(z, Omega, lo, hi, turns)
        for d in range(width):
            t = turns[d]
            out[2 * d] = scale * cos_turns(t)
            out[2 * d + 1] = scale * cos_turns(t - _QUARTER)


@jit
def encode_batch(kind, Omega, b, items, Z, X):
    """Write the features of the states Z (B, n) to X (B, R)."""
    D, (rows, n) = dimension(kind, Omega, items), Z.shape
    fours = rows // 4 * 4 if kind == FOURIER and n <= 8 else 0
    for i in range(0, fours, 4):
        four_states(Z, i, Omega, b, _ONE / np.sqrt(f32(D)), X)
    for i in range(fours, rows):
        encode_block(kind, Z[i], Omega, b, items, 0, D, X[i])


@jit
def refresh(kind, Omega, b, items, z, cached, phi):
    """Set phi to Phi(z) and cached to z, unless cached is z already: often the same state is encoded several times."""
    same = True
    for j in range(z.shape[0]):
        same = same and z[j] == cached[j]
    if not same:
        encode_block(kind, z, Omega, b, items, 0, dimension(kind, Omega, items), phi)
        cached[:] = z
