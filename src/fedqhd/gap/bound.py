"""The federation gap of one client: the paper's bound, the terms that are exact, and where an error comes from.

A client compiles values Q_bar wanted at the anchors, starting from W0 (0: overwrite, its own W: warm-start),

    W = W0 + R (Q_bar - X W0),      R = (X^T X + lam I)^-1 X^T.

Compare it with any weights W1 of the same client, say those of its oracle: with r = Q_bar - X W1 at the anchors,

    W - W1 = R r - lam (X^T X + lam I)^-1 P (W1 - W0) - (I - P) (W1 - W0),      P onto row(X).

The three parts are exact: what leaks in from values the client cannot express, what the ridge takes, and what no anchor
sees. The paper bounds the first two and drops the third, which is there whenever rank(X) < D. All weights here are
real, as `stacked_weights` makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fedqhd.linalg.geometry import Spectrum

Array = NDArray[Any]

RTOL = 1e-8
"""Ridge of a projection, as a share of the trace of its Gram matrix. Far above rounding (1e-16), so that weights stay
of a size that means something beyond the sample, and far below what changes a fit: a thousandth of it, at D = 1500."""


class Split(NamedTuple):
    """Weights whose sum leaked - shrunk - unseen is W - W1; each (p, A)."""

    leaked: Array
    shrunk: Array
    unseen: Array

    @property
    def total(self) -> Array:
        return self.leaked - self.shrunk - self.unseen


def split(anchors: Spectrum, Q: Array, X: Array, W1: Array, lam: float, W0: Array | float = 0.0) -> Split:
    """Why the weights compiled from Q at the anchors (features X) are not W1."""
    Z = W1 - W0
    return Split(anchors.solve(Q - X @ W1, lam), anchors.shrunk(Z, lam), Z - anchors.visible_weights(Z))


def outside(anchors: Spectrum, W: Array) -> float:
    """The share of |W|^2 outside row(X): what the anchors say nothing about."""
    total = float(np.sum(W**2))
    return float(np.sum((W - anchors.visible_weights(W)) ** 2)) / total if total > 0 else 0.0


def project(blocks: Iterable[tuple[Array, Array]], rtol: float = RTOL) -> Array:
    """argmin sum_l |Phi_l W - T_l|^2 over blocks of (real features, values): W (p, A).

    A ridge of rtol times the trace keeps it defined where features are dependent. One block at a time is in memory.
    """
    G: Array | None = None
    b: Array | None = None
    for Phi, T in blocks:
        if G is None or b is None:
            G, b = Phi.T @ Phi, Phi.T @ T
        else:
            G += Phi.T @ Phi
            b += Phi.T @ T
    if G is None or b is None:
        raise ValueError("there are no states to project on")
    G[np.diag_indices_from(G)] += rtol * np.trace(G)
    # G is symmetric; transposed, it is in the order that LAPACK works in, and is not copied.
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(G.T, overwrite_a=True, check_finite=False), b)


def h_bar(i: int, B: float, sines: Array, epsilon: Array, pi: Array) -> float:
    """sum_{j != i} pi_j (2 B sin(theta_ij) + eps_i + eps_j)."""
    others = np.arange(len(pi)) != i
    return float(np.sum((pi * (2 * B * sines[i] + epsilon[i] + epsilon))[others]))


class GapBound(NamedTuple):
    """The paper's bound on |Q_hat_i(s, a) - Q_i(s, a; W_i^glob)|, and what it takes to be true.

    `corrected` holds at every state, whatever the rank: |Phi(s)| <= 1 times the norms of the three exact parts. It
    needs neither the first term nor the angles, and has what no anchor sees.
    """

    gamma: float
    rank: int
    rtol: float
    h_bar: float
    heterogeneity: float
    amplification: float
    shrinkage: float
    valid: bool
    reason: str
    corrected: float

    @property
    def total(self) -> float:
        return self.heterogeneity + self.amplification + self.shrinkage


def gap_bound(anchors: Spectrum, h: float, W_hat: Array, parts: Split, lam: float) -> GapBound:
    """Terms I, II and III for a client with oracle weights W_hat (p, A), and its own `parts` by `split`."""
    gamma, m, p, rank = anchors.gamma, anchors.m, anchors.p, anchors.rank
    reason = ""
    if rank < p:
        why = f"m={m} anchors are fewer than the {p} features" if m < p else f"the {m} anchors are nearly dependent"
        reason = f"rank {rank} of {p}: {why}, so part of the oracle is outside row(X)"
    return GapBound(
        gamma=gamma,
        rank=rank,
        rtol=anchors.rtol,
        h_bar=h,
        heterogeneity=h,
        amplification=float(np.sqrt(m / (gamma + lam))) * h,
        shrinkage=lam / (gamma + lam) * float(np.linalg.norm(W_hat)),
        valid=not reason,
        reason=reason,
        corrected=float(np.sum([np.linalg.norm(part, axis=0) for part in parts], axis=0).max()),
    )


class Gap(NamedTuple):
    """A difference of two Q on states: the largest, the root mean square, and both for each action."""

    max: float
    rms: float
    max_per_action: tuple[float, ...]
    rms_per_action: tuple[float, ...]


def measure(Q: Array, reference: Array) -> Gap:
    d = np.abs(Q - reference)
    rms = np.sqrt(np.mean(d**2, axis=0))
    return Gap(
        float(d.max()),
        float(np.sqrt(np.mean(d**2))),
        tuple(float(x) for x in d.max(axis=0)),
        tuple(float(x) for x in rms),
    )


def check_shared(anchors: Sequence[Array]) -> None:
    """Clients that compile one teacher must mean the same states by its rows."""
    for i, own in enumerate(anchors[1:], start=1):
        if own.shape != anchors[0].shape or not np.array_equal(own, anchors[0]):
            raise ValueError(
                f"client {i} has other anchors {own.shape} than client 0 {anchors[0].shape}: a teacher is only defined "
                "on anchors that all clients share"
            )


def svd_bytes(m: int, p: int) -> int:
    """Memory that a Spectrum of m anchors and p real features takes: X, its copy in the solver, U and V^T."""
    return 8 * (2 * m * p + 2 * min(m, p) * (m + p))
