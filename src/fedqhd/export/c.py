"""A C header for a microcontroller: int8 weights, whole numbers throughout but for the scaling of the observation.

Actions are compared by Q less its mean over them: the mean, most of Q, would take all the precision of eight bits. An
angle is counted so that a turn is a power of 2 and overflow does no harm.
"""

from __future__ import annotations

import numpy as np

from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload
from fedqhd.envs.rollouts import states_met
from fedqhd.export.parts import kind_of, readout

STATE_BITS = 10
"""A scaled variable is counted in 1/1024, within +-32."""
TABLE_BITS = 10
"""Cosines of a turn that are tabled."""
STATES, EPSILON = 2000, 0.3
"""On which weights are rounded so that values change little, and how much of the play that meets them is random."""
TYPES = {"int8": "int8_t", "int16": "int16_t", "uint16": "uint16_t", "uint8": "uint8_t", "float32": "float"}

TEMPLATE = """/* ABOUT

   int fedqhd_action(const float obs[FEDQHD_N])  the action for one observation
   void fedqhd_scores(const float obs[FEDQHD_N], int32_t score[FEDQHD_ACTIONS])
       what actions are compared by: Q less its mean over actions, in units of FEDQHD_UNIT

   FLASH bytes of constants; no heap, no library but math.h's floorf. */
#ifndef FEDQHD_POLICY_H
#define FEDQHD_POLICY_H
#include <math.h>
#include <stdint.h>

#define FEDQHD_N N_
#define FEDQHD_ACTIONS ACTIONS_
#define FEDQHD_D D_
#define FEDQHD_UNIT UNIT_

ARRAYS
BODY
static inline int fedqhd_action(const float obs[FEDQHD_N]) {
    int32_t score[FEDQHD_ACTIONS];
    int best = 0;
    fedqhd_scores(obs, score);
    for (int a = 1; a < FEDQHD_ACTIONS; a++)
        if (score[a] > score[best]) best = a;
    return best;
}
#endif
"""
FOURIER = """
static inline void fedqhd_scores(const float obs[FEDQHD_N], int32_t score[FEDQHD_ACTIONS]) {
    int32_t z[FEDQHD_N];
    for (int j = 0; j < FEDQHD_N; j++) {
        float x = floorf((obs[j] - fedqhd_shift[j]) * fedqhd_per_unit[j] + 0.5f);
        z[j] = x > 32767.0f ? 32767 : x < -32767.0f ? -32767 : (int32_t)x;
    }
    for (int a = 0; a < FEDQHD_ACTIONS; a++) score[a] = 0;
    for (int d = 0; d < FEDQHD_D; d++) {
        uint32_t turn = PHASE;
        for (int j = 0; j < FEDQHD_N; j++) turn += (uint32_t)(z[j] * fedqhd_omega[j][d]);
        turn += 1u << (TURN - BITS - 1);
        const int8_t phi = fedqhd_cos[(turn >> (TURN - BITS)) & ((1u << BITS) - 1u)];
        for (int a = 0; a < FEDQHD_ACTIONS; a++) score[a] += (int32_t)phi * fedqhd_w[a][d];
SINE    }
}
"""
SINE = """        const int8_t psi = fedqhd_cos[((turn >> (TURN - BITS)) - (1u << (BITS - 2))) & ((1u << BITS) - 1u)];
        for (int a = 0; a < FEDQHD_ACTIONS; a++) score[a] += (int32_t)psi * fedqhd_w_imag[a][d];
"""
SYMBOLIC = """
static inline void fedqhd_scores(const float obs[FEDQHD_N], int32_t score[FEDQHD_ACTIONS]) {
    const uint8_t *item[FEDQHD_N];
    for (int j = 0; j < FEDQHD_N; j++) {
        float x = floorf((obs[j] - fedqhd_shift[j]) * fedqhd_per_unit[j] + 0.5f);
        int k = x < 0.0f ? 0 : x > LAST.0f ? LAST : (int)x;
        item[j] = fedqhd_items[j][k];
    }
    for (int a = 0; a < FEDQHD_ACTIONS; a++) score[a] = 0;
    for (int d = 0; d < FEDQHD_D; d++) {
        int32_t sum = 0, product = 1;
        for (int j = 0; j < FEDQHD_N; j++) {
            const int32_t bit = (item[j][d >> 3] >> (d & 7)) & 1 ? 1 : -1;
            sum += bit;
            product *= bit;
        }
        const int32_t phi = FEDQHD_N > 1 ? sum + product : sum;
        for (int a = 0; a < FEDQHD_ACTIONS; a++) score[a] += phi * fedqhd_w[a][d];
    }
}
"""


def header(policy: Policy, about: str) -> bytes:
    kind = kind_of(policy, "c", ("fourier", "complex", "symbolic"))
    arrays, W = readout(policy)
    W = W - W.mean(axis=1, keepdims=True)
    real = np.vstack([W.real, W.imag]) if kind == "complex" else np.asarray(W)
    unit = float(np.abs(real).max()) / 127 or 1.0
    S = _states(policy)
    kept, F, body = (_symbolic if kind == "symbolic" else _fourier)(policy, arrays, S)
    q = rounded(F.astype(np.float64), real.astype(np.float64), unit)
    kept["fedqhd_w"] = q[: len(W)].T
    if kind == "complex":
        kept["fedqhd_w_imag"] = q[len(W) :].T
    unit /= 1 if kind == "symbolic" else 127
    text = TEMPLATE.replace("ARRAYS", "\n".join(_array(name, x) for name, x in kept.items())).replace("BODY", body)
    for word, value in (
        ("ABOUT", about), ("FLASH", f"{sum(x.nbytes for x in kept.values()):,}"), ("N_", str(policy.model.n)),
        ("ACTIONS_", str(policy.model.actions)), ("D_", str(len(W))), ("UNIT_", f"{unit:.9e}f"),
    ):  # fmt: skip
        text = text.replace(f" {word}", f" {value}", 1)
    return text.encode()


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


def _symbolic(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, str]:
    first, per_unit = (float(x) for x in arrays["grid"])
    items, scaler, encoder = arrays["items"], policy.scaler, policy.model.encoder  # type: ignore[attr-defined]
    kept: dict[str, Array] = {
        "fedqhd_shift": np.asarray(scaler.shift + first * scaler.scale, np.float32),
        "fedqhd_per_unit": np.asarray(per_unit / scaler.scale, np.float32),
        "fedqhd_items": np.packbits(items > 0, axis=2, bitorder="little"),
    }
    terms = encoder.n + 1 if encoder.n > 1 else 1
    F = np.rint(encoder(scaler(S)) * terms * np.sqrt(encoder.D))
    return kept, F, SYMBOLIC.replace("LAST", str(items.shape[1] - 1))


def _fourier(policy: Policy, arrays: Payload, S: Array) -> tuple[dict[str, Array], Array, str]:
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
    phase, start = "0", np.zeros(1, np.int64)
    if "b" in arrays:
        kept["fedqhd_phase"] = np.rint(arrays["b"].astype(np.float64) * 2**16).astype(np.int64).astype(np.uint16)
        phase, start = f"(uint32_t)fedqhd_phase[d] << {turn - 16}", kept["fedqhd_phase"].astype(np.int64) << turn - 16
    # As the C has it, in whole numbers.
    z = np.floor((S - kept["fedqhd_shift"]) * kept["fedqhd_per_unit"] + 0.5)
    turns = start + np.clip(z, -32767, 32767).astype(np.int64) @ kept["fedqhd_omega"].astype(np.int64)
    index = (turns + (1 << turn - TABLE_BITS - 1) >> turn - TABLE_BITS) % 2**TABLE_BITS
    F = kept["fedqhd_cos"][index] / 127
    if "b" not in arrays:
        F = np.hstack([F, kept["fedqhd_cos"][(index - 2 ** (TABLE_BITS - 2)) % 2**TABLE_BITS] / 127])
    body = FOURIER.replace("SINE", "" if "b" in arrays else SINE).replace("PHASE", phase)
    return kept, F, body.replace("TURN", str(turn)).replace("BITS", str(TABLE_BITS))


def _array(name: str, x: Array) -> str:
    sizes = "".join(f"[{k}]" for k in x.shape)
    return f"static const {TYPES[x.dtype.name]} {name}{sizes} = {_braces(x)};"


def _braces(x: Array) -> str:
    if x.ndim > 1:
        return "{" + ",\n".join(_braces(row) for row in x) + "}"
    return "{" + ",".join(f"{v:.9e}f" if x.dtype.kind == "f" else str(v) for v in x.tolist()) + "}"
