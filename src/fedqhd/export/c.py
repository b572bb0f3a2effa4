"""A C header for a microcontroller: int8 weights, whole numbers throughout but for the scaling of the observation.

Actions are compared by Q less its mean over them: the mean, most of Q, would take all the precision of eight bits. An
angle is counted so that a turn is a power of 2 and overflow does no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload
from fedqhd.core.templates import render
from fedqhd.envs.rollouts import states_met
from fedqhd.export.parts import kind_of, readout

STATE_BITS = 10
"""A scaled variable is counted in 1/1024, within +-32."""
TABLE_BITS = 10
"""Cosines of a turn that are tabled."""
STATES, EPSILON = 2000, 0.3
"""On which weights are rounded so that values change little, and how much of the play that meets them is random."""
TYPES = {"int8": "int8_t", "int16": "int16_t", "uint16": "uint16_t", "uint8": "uint8_t", "float32": "float"}


def header(policy: Policy, about: str) -> bytes:
    """The policy as a C header.

    Args:
        policy: A policy whose features are cosines or bits.
        about: A sentence on where it comes from, for the comment at the top.

    Returns:
        The text of the header.
    """
    kind = kind_of(policy, "c", ("fourier", "complex", "symbolic"))
    arrays, W = readout(policy)
    W = W - W.mean(axis=1, keepdims=True)
    real = np.vstack([W.real, W.imag]) if kind == "complex" else np.asarray(W)
    unit = float(np.abs(real).max()) / 127 or 1.0
    S = _states(policy)
    kept, F, settings = (_symbolic if kind == "symbolic" else _fourier)(policy, arrays, S)
    q = rounded(F.astype(np.float64), real.astype(np.float64), unit)
    kept["fedqhd_w"] = q[: len(W)].T
    if kind == "complex":
        kept["fedqhd_w_imag"] = q[len(W) :].T
    return render(
        "export/templates/policy.h.jinja", about=about, kind=kind, n=policy.model.n, actions=policy.model.actions,
        D=len(W), unit=unit / (1 if kind == "symbolic" else 127), flash=sum(x.nbytes for x in kept.values()),
        arrays=[_array(name, x) for name, x in kept.items()], **settings,
    ).encode()  # fmt: skip


def rounded(F: Array, W: Array, unit: float) -> Array:
    """W (R, A) in whole units, at most 127 of them, so that F W changes little on rows F (m, R).

    Each weight also takes up what the rounding of those before it did to the values, as far as its own feature can:
    features are many and see few directions, so little of it is left. Rounded one by one, every error would stay.
    """
    left, q = np.zeros((len(F), W.shape[1])), np.zeros(W.shape, np.int8)
    for d in range(len(W)):
        f = F[:, d]
        wanted = W[d] + f @ left / max(float(f @ f), 1e-12)
        q[d] = np.clip(np.rint(wanted / unit), -127, 127)
        left += np.outer(f, W[d] - unit * q[d])
    return q


def _states(policy: Policy) -> Array:
    """Observations that the policy meets, and others around them; in the box of states where it cannot be played."""
    own = np.random.default_rng(0)
    try:
        env = policy.make_env()
    except FedQHDError:
        return own.uniform(policy.scaler.low, policy.scaler.high, (STATES, policy.model.n))

    def act(s: Array) -> int:
        return int(own.integers(policy.model.actions) if own.random() < EPSILON else policy.predict(s)[0])

    return states_met(env, STATES, own, act)


def _symbolic(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, dict[str, Any]]:
    """The constants of the header, the features of S as the C computes them, and what else the template needs."""
    first, per_unit = (float(x) for x in arrays["grid"])
    items, scaler, encoder = arrays["items"], policy.scaler, policy.model.encoder  # type: ignore[attr-defined]
    kept: dict[str, Array] = {
        "fedqhd_shift": np.asarray(scaler.shift + first * scaler.scale, np.float32),
        "fedqhd_per_unit": np.asarray(per_unit / scaler.scale, np.float32),
        "fedqhd_items": np.packbits(items > 0, axis=2, bitorder="little"),
    }
    terms = encoder.n + 1 if encoder.n > 1 else 1
    F = np.rint(encoder(scaler(S)) * terms * np.sqrt(encoder.D))
    return kept, F, {"last_level": items.shape[1] - 1}


def _fourier(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, dict[str, Any]]:
    """As `_symbolic`, for features that are cosines."""
    scaler, Omega = policy.scaler, arrays["Omega"].astype(np.float64)
    finest = int(np.floor(np.log2(32767 / max(float(np.abs(Omega).max()), 2.0**-7))))
    turn = min(finest, 22) + STATE_BITS
    cosines = np.cos(2 * np.pi * np.arange(2**TABLE_BITS) / 2**TABLE_BITS)
    kept = {
        "fedqhd_shift": np.asarray(scaler.shift, np.float32),
        "fedqhd_per_unit": np.asarray(2**STATE_BITS / scaler.scale, np.float32),
        "fedqhd_omega": np.rint(Omega * 2.0 ** (turn - STATE_BITS)).astype(np.int16),
        "fedqhd_cos": np.rint(127 * cosines).astype(np.int8),
    }
    has_phase, start = "b" in arrays, np.zeros(1, np.int64)
    if has_phase:
        kept["fedqhd_phase"] = np.rint(arrays["b"].astype(np.float64) * 2**16).astype(np.int64).astype(np.uint16)
        start = kept["fedqhd_phase"].astype(np.int64) << turn - 16
    # As the C has it, in whole numbers.
    z = np.floor((S - kept["fedqhd_shift"]) * kept["fedqhd_per_unit"] + 0.5)
    turns = start + np.clip(z, -32767, 32767).astype(np.int64) @ kept["fedqhd_omega"].astype(np.int64)
    index = (turns + (1 << turn - TABLE_BITS - 1) >> turn - TABLE_BITS) % 2**TABLE_BITS
    F = kept["fedqhd_cos"][index] / 127
    if not has_phase:
        F = np.hstack([F, kept["fedqhd_cos"][(index - 2 ** (TABLE_BITS - 2)) % 2**TABLE_BITS] / 127])
    return kept, F, {"has_phase": has_phase, "turn_bits": turn, "table_bits": TABLE_BITS}


def _array(name: str, x: Array) -> tuple[str, str, str]:
    """A constant as it is declared in C: its type, its name with its sizes, its values."""
    sizes = "".join(f"[{k}]" for k in x.shape)
    return TYPES[x.dtype.name], name + sizes, _braces(x)


def _braces(x: Array) -> str:
    if x.ndim > 1:
        return "{" + ",\n".join(_braces(row) for row in x) + "}"
    return "{" + ",".join(f"{v:.9e}f" if x.dtype.kind == "f" else str(v) for v in x.tolist()) + "}"
