"""Sparse hypervectors of grids: the components that a grid's active cells, and what they form together, switch on."""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit

NEAR = 1
"""How far apart, in rows and in columns, the two cells of a local pair are at most."""
u64 = np.uint64
_SHIFTS = u64(30), u64(27), u64(31), u64(32)
_FACTORS = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)


@jit(inline="always")
def component(item, key, D):
    """Return the component of an item, from 0 to D - 1: the finaliser of SplitMix64 applied to item xor key."""
    x = u64(item) ^ key
    x = (x ^ (x >> _SHIFTS[0])) * _FACTORS[0]
    x = (x ^ (x >> _SHIFTS[1])) * _FACTORS[1]
    x = x ^ (x >> _SHIFTS[2])
    return np.int64(((x >> _SHIFTS[3]) * u64(D)) >> _SHIFTS[3])


@jit(inline="always")
def _switch_on(item, key, seen, active, k):
    """Append the component of an item to the k active ones, unless it is among them, and return their number."""
    d = component(item, key, seen.shape[0])
    if seen[d]:
        return k
    seen[d] = True
    active[k] = d
    return k + 1


@jit
def switch_on(z, grid, order, key, seen, active):
    """Write the active components of a grid to `active` and return their number k; Phi_d is k^-1/2 at each of them.

    Items are numbered: first the cells, then pairs of cells by their channels and the offset between them, then pairs
    of neighbouring cells of different channels together with a third cell, by all channels and offsets.

    Args:
        z: The cells (H W C,), row by row and, at each place, channel by channel. Those above 1/2 are active.
        grid: H, W and C.
        order: 1 for cells alone, 2 for pairs as well, 3 for triples as well.
        key: The key of the hash.
        seen: Scratch space (D,), all False.
        active: Room for the components, (D,).
    """
    H, W, C = grid[0], grid[1], grid[2]
    cells = np.empty(z.shape[0], np.int64)
    n = k = 0
    for i in range(z.shape[0]):
        if z[i] > np.float32(0.5):
            cells[n] = i
            n += 1
            k = _switch_on(i, key, seen, active, k)
    across, side = 2 * W - 1, 2 * NEAR + 1
    offsets = (2 * H - 1) * across
    pairs, triples = z.shape[0], z.shape[0] + C * C * offsets
    for i in range(n if order > 1 else 0):
        for j in range(i + 1, n):
            p, q = cells[i], cells[j]
            if p % C > q % C:
                p, q = q, p
            a, b, y, x = p % C, q % C, p // (C * W), p // C % W
            dy, dx = q // (C * W) - y, q // C % W - x
            k = _switch_on(pairs + (a * C + b) * offsets + (dy + H - 1) * across + dx + W - 1, key, seen, active, k)
            if order < 3 or a == b or abs(dy) > NEAR or abs(dx) > NEAR:
                continue
            shape = ((a * C + b) * side + dy + NEAR) * side + dx + NEAR
            for third in cells[:n]:
                if third not in (p, q):
                    up, along = third // (C * W) - y + H - 1, third // C % W - x + W - 1
                    item = triples + (shape * C + third % C) * offsets + up * across + along
                    k = _switch_on(item, key, seen, active, k)
    for i in range(k):
        seen[active[i]] = False
    return k
