"""Export as a C header for microcontrollers: int8 weights, and integer arithmetic after the observation is scaled.

Actions are compared by Q minus its mean over the actions. The mean is most of Q and would use up the precision of eight
bits. Angles are measured in units such that a full turn is a power of 2, which makes integer overflow harmless.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload
from fedqhd.core.source import Code, c_comment, identifier, number
from fedqhd.core.templates import render
from fedqhd.envs.rollouts import states_met
from fedqhd.export.parts import kind_of, readout

STATE_BITS = 10
"""Bits after the binary point of a scaled state variable: units of 1/1024, clipped to +-32."""
TABLE_BITS = 10
"""The table of cosines has 2**TABLE_BITS entries for a full turn."""
STATES, EPSILON = 2000, 0.3
"""How many states the rounding of the weights is adapted to, and the share of random actions in the play that visits
them."""
TYPES = {"int8": "int8_t", "int16": "int16_t", "uint16": "uint16_t", "uint8": "uint8_t", "float32": "float"}


def header(policy: Policy, about: str, name: str) -> bytes:
    """Return the policy as a C header.

    Args:
        policy: A policy with a Fourier, complex Fourier or symbolic encoder.
        about: A sentence about the origin of the policy, for the comment at the top.
        name: The name of the policy, with which all names in the header begin, so that one program can include several.

    Returns:
        The encoded text of the header.

    Raises:
        FedQHDError: If the policy is a network or has another encoder.
    """
    kind = kind_of(policy, "c", ("fourier", "complex", "symbolic"))
    arrays, W = readout(policy)
    W = W - W.mean(axis=1, keepdims=True)
    real = np.vstack([W.real, W.imag]) if kind == "complex" else np.asarray(W)
    unit = float(np.abs(real).max()) / 127 or 1.0
    S = _states(policy)
    constants, F, settings = (_symbolic if kind == "symbolic" else _fourier)(policy, arrays, S)
    q = rounded(F.astype(np.float64), real.astype(np.float64), unit)
    constants["w"] = q[: len(W)].T
    if kind == "complex":
        constants["w_imag"] = q[len(W) :].T
    prefix = identifier(name)
    return render(
        "export/templates/policy.h.jinja", about=c_comment(about), prefix=prefix, PREFIX=identifier(prefix.upper()),
        kind=kind, n=policy.model.n, actions=policy.model.actions, action_repeat=policy.action_repeat, D=len(W),
        unit=Code(number(unit / (1 if kind == "symbolic" else 127), ".9e") + "f"),
        flash=Code(f"{sum(x.nbytes for x in constants.values()):,}"),
        arrays=[_array(key, x) for key, x in constants.items()], **settings,
    ).encode()  # fmt: skip


def rounded(F: Array, W: Array, unit: float) -> Array:
    """Round weights to multiples of `unit` so that the values F W change little.

    The weights are rounded in turn, and each one compensates for the errors that the ones before it left in F W, as far
    as its own feature can. There are many more features than directions in F, so that little error remains; rounding
    each weight to the nearest multiple would leave all of it.

    Args:
        F: Features of some states, (m, R).
        W: Weights, (R, A).
        unit: The step of the grid.

    Returns:
        The weights in units, int8 from -127 to 127, (R, A).
    """
    left, q = np.zeros((len(F), W.shape[1])), np.zeros(W.shape, np.int8)
    for d in range(len(W)):
        f = F[:, d]
        wanted = W[d] + f @ left / max(float(f @ f), 1e-12)
        q[d] = np.clip(np.rint(wanted / unit), -127, 127)
        left += np.outer(f, W[d] - unit * q[d])
    return q


def _states(policy: Policy) -> Array:
    """Return observations from episodes of the policy with some random actions, (STATES, n).

    If the environment cannot be made, they are uniform in the box of states.
    """
    rng = np.random.default_rng(0)
    try:
        env = policy.make_env()
    except FedQHDError:
        return rng.uniform(policy.scaler.low, policy.scaler.high, (STATES, policy.model.n))

    def act(s: Array) -> int:
        return int(rng.integers(policy.model.actions) if rng.random() < EPSILON else policy.predict(s)[0])

    return states_met(env, STATES, rng, act)


def _symbolic(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, dict[str, Any]]:
    """Return the constants of the header, the features of S as the C code computes them, and template variables."""
    first, per_unit = (float(x) for x in arrays["grid"])
    items, scaler, encoder = arrays["items"], policy.scaler, policy.model.encoder  # type: ignore[attr-defined]
    constants: dict[str, Array] = {
        "shift": np.asarray(scaler.shift + first * scaler.scale, np.float32),
        "per_unit": np.asarray(per_unit / scaler.scale, np.float32),
        "items": np.packbits(items > 0, axis=2, bitorder="little"),
    }
    terms = encoder.n + 1 if encoder.n > 1 else 1
    F = np.rint(encoder(scaler(S)) * terms * np.sqrt(encoder.D))
    return constants, F, {"last_level": items.shape[1] - 1}


def _fourier(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, dict[str, Any]]:
    """Return the same as `_symbolic` for Fourier features."""
    scaler, Omega = policy.scaler, arrays["Omega"].astype(np.float64)
    finest = int(np.floor(np.log2(32767 / max(float(np.abs(Omega).max()), 2.0**-7))))
    turn = min(finest, 22) + STATE_BITS
    cosines = np.cos(2 * np.pi * np.arange(2**TABLE_BITS) / 2**TABLE_BITS)
    constants = {
        "shift": np.asarray(scaler.shift, np.float32),
        "per_unit": np.asarray(2**STATE_BITS / scaler.scale, np.float32),
        "omega": np.rint(Omega * 2.0 ** (turn - STATE_BITS)).astype(np.int16),
        "cos": np.rint(127 * cosines).astype(np.int8),
    }
    has_phase, start = "b" in arrays, np.zeros(1, np.int64)
    if has_phase:
        constants["phase"] = np.rint(arrays["b"].astype(np.float64) * 2**16).astype(np.int64).astype(np.uint16)
        start = constants["phase"].astype(np.int64) << turn - 16
    # The same integer arithmetic as in the C code.
    z = np.floor((S - constants["shift"]) * constants["per_unit"] + 0.5)
    turns = start + np.clip(z, -32767, 32767).astype(np.int64) @ constants["omega"].astype(np.int64)
    index = (turns + (1 << turn - TABLE_BITS - 1) >> turn - TABLE_BITS) % 2**TABLE_BITS
    F = constants["cos"][index] / 127
    if not has_phase:
        F = np.hstack([F, constants["cos"][(index - 2 ** (TABLE_BITS - 2)) % 2**TABLE_BITS] / 127])
    return constants, F, {"has_phase": has_phase, "turn_bits": turn, "table_bits": TABLE_BITS}


def _array(name: str, x: Array) -> tuple[Code, Code, Code]:
    """Return the parts of a C declaration of x: the type, the name with its sizes, and the values in braces."""
    sizes = "".join(f"[{k}]" for k in x.shape)
    return Code(TYPES[x.dtype.name]), Code(name + sizes), Code(_braces(x))


def _braces(x: Array) -> str:
    if x.ndim > 1:
        return "{" + ",\n".join(_braces(row) for row in x) + "}"
    return "{" + ",".join(number(v, ".9e") + "f" if x.dtype.kind == "f" else str(v) for v in x.tolist()) + "}"
