"""Cosines of random Fourier features: turns z . Omega and cos(2 pi turns).

Angles are in turns, not radians, so that reducing them to one period is a subtraction.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from fedqhd.kernels.cache import jit

f32 = np.float32

# sin(2 pi x) on |x| <= 1/4, odd minimax polynomial (Lawson's iteration), error 3.4e-9.
_S1, _S3, _S5, _S7, _S9 = f32(6.28318516), f32(-41.341655), f32(81.601004), f32(-76.549782), f32(39.536706)
_ZERO, _QUARTER, _HALF = f32(0.0), f32(0.25), f32(0.5)


@jit(inline="always")
def cos_turns(t):
    """Return cos(2 pi t). It uses floor, not rint, because only floor vectorises here."""
    t = t - np.floor(t + _HALF)
    x = _QUARTER - abs(t)
    u = x * x
    return x * (_S1 + u * (_S3 + u * (_S5 + u * (_S7 + u * _S9))))


# The Taylor series of sin(2 pi x), for double precision: the first omitted term is below 2e-18.
_TAYLOR = tuple((-1) ** k * (2 * np.pi) ** (2 * k + 1) / factorial(2 * k + 1) for k in range(11))


@jit
def cosines(T, scale):
    """Replace T by scale cos(2 pi T), in double precision and an order of magnitude faster than numpy."""
    flat = T.reshape(-1)
    for d in range(len(flat)):
        t = flat[d] - np.floor(flat[d] + 0.5)
        x = 0.25 - abs(t)
        u, total = x * x, _TAYLOR[10]
        for k in range(9, -1, -1):
            total = _TAYLOR[k] + u * total
        flat[d] = scale * x * total


@jit
def add_turns(z, Omega, lo, hi, out):
    """Add z . Omega[:, lo:hi] to out.

    The loops run along one-dimensional slices, because these vectorise, and take four variables at a time, which saves
    three of four passes over `out`.
    """
    n, width, j = z.shape[0], hi - lo, 0
    while j + 4 <= n:
        z0, z1, z2, z3 = z[j], z[j + 1], z[j + 2], z[j + 3]
        w0, w1, w2, w3 = Omega[j, lo:hi], Omega[j + 1, lo:hi], Omega[j + 2, lo:hi], Omega[j + 3, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d] + z1 * w1[d] + z2 * w2[d] + z3 * w3[d]
        j += 4
    while j + 2 <= n:
        z0, z1 = z[j], z[j + 1]
        w0, w1 = Omega[j, lo:hi], Omega[j + 1, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d] + z1 * w1[d]
        j += 2
    if j < n:
        z0, w0 = z[j], Omega[j, lo:hi]
        for d in range(width):
            out[d] += z0 * w0[d]


@jit(inline="always")
def _variable(z, j):
    """Return z_j, or zero if z has no variable j."""
    return z[j] if j < z.shape[0] else _ZERO


@jit(inline="always")
def _eight(z, j):
    """Return variables j to j + 7."""
    return (_variable(z, j), _variable(z, j + 1), _variable(z, j + 2), _variable(z, j + 3),
            _variable(z, j + 4), _variable(z, j + 5), _variable(z, j + 6), _variable(z, j + 7))  # fmt: skip


@jit(inline="always")
def _frequencies(Omega, j, lo, hi):
    """Return rows j to j + 7 of Omega; the last row replaces those that Omega does not have."""
    n = Omega.shape[0] - 1
    return (Omega[j, lo:hi], Omega[min(j + 1, n), lo:hi], Omega[min(j + 2, n), lo:hi], Omega[min(j + 3, n), lo:hi],
            Omega[min(j + 4, n), lo:hi], Omega[min(j + 5, n), lo:hi], Omega[min(j + 6, n), lo:hi],
            Omega[min(j + 7, n), lo:hi])  # fmt: skip


@jit
def _feature(t, z, w, d, scale):
    """Return scale cos(2 pi (t + z . w_d)). Writing the turns to memory before taking their cosine would take twice as
    long."""
    t = t + z[0] * w[0][d] + z[1] * w[1][d] + z[2] * w[2][d] + z[3] * w[3][d]
    return scale * cos_turns(t + z[4] * w[4][d] + z[5] * w[5][d] + z[6] * w[6][d] + z[7] * w[7][d])


@jit
def four_variables(turns, z, Omega, lo, hi, scale, out):
    """Write scale cos(2 pi (turns + z . Omega[:, lo:hi])) to out for at most four variables."""
    z0, z1, z2, z3 = _variable(z, 0), _variable(z, 1), _variable(z, 2), _variable(z, 3)
    n = Omega.shape[0] - 1
    w0, w1 = Omega[0, lo:hi], Omega[min(1, n), lo:hi]
    w2, w3 = Omega[min(2, n), lo:hi], Omega[min(3, n), lo:hi]
    for d in range(hi - lo):
        out[d] = scale * cos_turns(turns[d] + z0 * w0[d] + z1 * w1[d] + z2 * w2[d] + z3 * w3[d])


@jit
def eight_variables(turns, z, Omega, j, lo, hi, scale, out):
    """Write scale cos(2 pi (turns + z . Omega[:, lo:hi])) to out, summing over variables j to j + 7."""
    y, w = _eight(z, j), _frequencies(Omega, j, lo, hi)
    for d in range(hi - lo):
        out[d] = _feature(turns[d], y, w, d, scale)


@jit
def four_states(Z, i, Omega, b, scale, X):
    """Write scale cos(2 pi (b + Z . Omega)) to X for states i to i + 3 of at most eight variables, reading the
    frequencies once for all four."""
    w = _frequencies(Omega, 0, 0, Omega.shape[1])
    z0, z1, z2, z3 = _eight(Z[i], 0), _eight(Z[i + 1], 0), _eight(Z[i + 2], 0), _eight(Z[i + 3], 0)
    x0, x1, x2, x3 = X[i], X[i + 1], X[i + 2], X[i + 3]
    for d in range(b.shape[0]):
        x0[d], x1[d] = _feature(b[d], z0, w, d, scale), _feature(b[d], z1, w, d, scale)
        x2[d], x3[d] = _feature(b[d], z2, w, d, scale), _feature(b[d], z3, w, d, scale)
