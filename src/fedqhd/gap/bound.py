"""The federation gap of one client: the bound of the paper, and an exact decomposition of the error.

A client compiles the teacher's values Q_bar at the anchors, starting from W0, which is 0 for overwrite and the client's
own W for warm-start:

    W = W0 + R (Q_bar - X W0),      R = (X^T X + lam I)^-1 X^T.

Compare W with any weights W1 of the same client, such as those of its oracle. With r = Q_bar - X W1 at the anchors,

    W - W1 = R r - lam (X^T X + lam I)^-1 P (W1 - W0) - (I - P) (W1 - W0),

where P projects onto row(X). The three parts are exact: values that the client cannot express leak into its weights,
the ridge shrinks the weights, and the anchors do not see part of them. The paper bounds the first two parts and omits
the third, which is present whenever rank(X) < D. All weights here are real, as `stacked_weights` makes them.
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
"""The ridge of a projection, as a share of the trace of its Gram matrix. It is far above rounding errors (1e-16), so
that weights stay small enough to generalise beyond the sample, and too small to change a fit noticeably: at D = 1500,
by a thousandth."""


class Split(NamedTuple):
    """The parts of W - W1 = leaked - shrunk - unseen, each (p, A).

    `leaked` comes from values that the client cannot express, `shrunk` is removed by the ridge, and `unseen` lies
    outside the row space of the features at the anchors.
    """

    leaked: Array
    shrunk: Array
    unseen: Array

    @property
    def total(self) -> Array:
        """W - W1."""
        return self.leaked - self.shrunk - self.unseen


def split(anchors: Spectrum, Q: Array, X: Array, W1: Array, lam: float, W0: Array | float = 0.0) -> Split:
    """Decompose the difference between the weights compiled from Q and other weights W1.

    Args:
        anchors: The SVD of the features at the anchors.
        Q: Values of the teacher at the anchors, (m, A).
        X: Real features at the anchors, (m, p).
        W1: The weights to compare with, (p, A).
        lam: The ridge.
        W0: The weights from which compilation starts, (p, A), or 0.
    """
    Z = W1 - W0
    return Split(anchors.solve(Q - X @ W1, lam), anchors.shrunk(Z, lam), Z - anchors.visible_weights(Z))


def share_outside(anchors: Spectrum, W: Array) -> float:
    """Return the share of |W|^2 outside row(X), about which the anchors say nothing."""
    total = float(np.sum(W**2))
    return float(np.sum((W - anchors.visible_weights(W)) ** 2)) / total if total > 0 else 0.0


def project(blocks: Iterable[tuple[Array, Array]], rtol: float = RTOL) -> Array:
    """Return the least-squares weights W (p, A) that minimise sum_l |Phi_l W - T_l|^2.

    Args:
        blocks: Pairs of real features Phi_l (n_l, p) and values T_l (n_l, A). Only one block at a time is in memory.
        rtol: The ridge as a share of the trace of the Gram matrix; it makes the solution unique if features are
            linearly dependent.

    Raises:
        ValueError: If there are no blocks.
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
        raise ValueError("blocks has no states: at least one block is needed to project on")
    G[np.diag_indices_from(G)] += rtol * np.trace(G)
    # G is symmetric. Its transpose has the memory order of LAPACK, so that it is not copied.
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(G.T, overwrite_a=True, check_finite=False), b)


def h_bar(i: int, B: float, sines: Array, epsilon: Array, pi: Array) -> float:
    """Return the heterogeneity of client i, h_bar = sum_{j != i} pi_j (2 B sin(theta_ij) + eps_i + eps_j).

    Args:
        i: The index of the client.
        B: The norm of Q* over the states, the largest of all actions.
        sines: Sines of the largest angles between the clients' spans, (N, N).
        epsilon: Errors of the clients' oracle projections of Q*, (N,).
        pi: Weights of the clients in the teacher, (N,).
    """
    others = np.arange(len(pi)) != i
    return float(np.sum((pi * (2 * B * sines[i] + epsilon[i] + epsilon))[others]))


class GapBound(NamedTuple):
    """The paper's bound on |Q_hat_i(s, a) - Q_i(s, a; W_i^glob)|, and whether its assumptions hold.

    `heterogeneity`, `amplification` and `shrinkage` are terms I, II and III. They bound the gap only if the features at
    the anchors have full rank; otherwise `valid` is False, and `reason` says why. `corrected` bounds the gap at every
    state for any rank: it is the sum of the norms of the three exact parts (see `split`), since |Phi(s)| <= 1. It needs
    neither term I nor the angles, and it includes the part that no anchor sees.
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
        """The paper's bound: the sum of its three terms."""
        return self.heterogeneity + self.amplification + self.shrinkage


def gap_bound(anchors: Spectrum, h: float, W_hat: Array, parts: Split, lam: float) -> GapBound:
    """Compute the bound for one client.

    Args:
        anchors: The SVD of the client's features at the anchors.
        h: The heterogeneity of the client (see `h_bar`).
        W_hat: The weights of its oracle, (p, A).
        parts: The decomposition of its compiled weights minus W_hat (see `split`).
        lam: The ridge.
    """
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
    """The absolute difference of two Q on states: its maximum and root mean square, over all and for each action."""

    max: float
    rms: float
    max_per_action: tuple[float, ...]
    rms_per_action: tuple[float, ...]


def measure(Q: Array, reference: Array) -> Gap:
    """Compare two arrays of values, (n, A), at the same states."""
    d = np.abs(Q - reference)
    rms = np.sqrt(np.mean(d**2, axis=0))
    return Gap(
        float(d.max()),
        float(np.sqrt(np.mean(d**2))),
        tuple(float(x) for x in d.max(axis=0)),
        tuple(float(x) for x in rms),
    )


def check_shared(anchors: Sequence[Array]) -> None:
    """Check that all clients have the same anchors.

    Raises:
        ValueError: If the anchors of a client differ from those of client 0.
    """
    for i, states in enumerate(anchors[1:], start=1):
        if states.shape != anchors[0].shape or not np.array_equal(states, anchors[0]):
            raise ValueError(
                f"client {i} has anchors of shape {states.shape} that differ from those of client 0, "
                f"{anchors[0].shape}: a teacher is only defined on anchors that all clients share"
            )


def svd_bytes(m: int, p: int) -> int:
    """Return the bytes of a Spectrum of m anchors and p real features: X, its copy in the solver, U and V^T."""
    return 8 * (2 * m * p + 2 * min(m, p) * (m + p))
