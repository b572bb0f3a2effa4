"""One step of learning with eligibility traces, on dense features and on sparse ones.

`agents/td.py` has the same equations in plain numpy. W and the traces E have one row per action.
"""

from __future__ import annotations

import numpy as np

from fedqhd.kernels.cache import jit

FORGOTTEN = 0.01
"""A sparse trace that has decayed to this share of its feature is set to zero, so that lists stay short."""
f32 = np.float32


@jit
def sparse_values(active, k, W, q):
    """Write Q(s, .) to q for a hypervector with k active components, each k^-1/2."""
    scale = f32(1.0) / np.sqrt(f32(max(k, 1)))
    for a in range(W.shape[0]):
        total = f32(0.0)
        for i in range(k):
            total += W[a, active[i]]
        q[a] = scale * total


@jit
def dense_trace_step(W, E, phi, a, replacing, step, decay):
    """Set E to the traces that include phi in the action a, add step E to W, and let E decay."""
    for d in range(phi.shape[0]):
        if replacing:
            E[a, d] = phi[d] if abs(phi[d]) >= abs(E[a, d]) else E[a, d]
        else:
            E[a, d] += phi[d]
    for c in range(W.shape[0]):
        for d in range(W.shape[1]):
            W[c, d] += f32(step) * E[c, d]
            E[c, d] *= f32(decay)


@jit
def sparse_trace_step(W, E, listed, count, active, k, a, replacing, step, decay):
    """Do what `dense_trace_step` does for a sparse hypervector, and return how many traces are left.

    Args:
        W: The weights, (A, D).
        E: The traces, (A, D), zero but for those that are listed.
        listed: The places of the traces in the flat E, (A D,).
        count: How many are listed.
        active: The active components.
        k: How many there are.
        a: The action.
        replacing: Whether a feature's trace is replaced; if not, it accumulates.
        step: The step size times the TD error.
        decay: The discount times lambda; 0 ends all traces.
    """
    D = W.shape[1]
    weights, traces = W.reshape(-1), E.reshape(-1)
    phi = f32(1.0) / np.sqrt(f32(max(k, 1)))
    for i in range(k):
        place = a * D + active[i]
        if traces[place] == f32(0.0):
            listed[count] = place
            count += 1
            traces[place] = phi
        else:
            traces[place] = max(phi, traces[place]) if replacing else traces[place] + phi
    left, least = 0, f32(FORGOTTEN) * phi
    for i in range(count):
        place = listed[i]
        weights[place] += f32(step) * traces[place]
        trace = traces[place] * f32(decay)
        traces[place] = trace if trace > least else f32(0.0)
        if trace > least:
            listed[left] = place
            left += 1
    return left
