"""Shorter replies: W or Q in 16 or 8 bits, with one power of two a reply as their unit.

Clients round what they send, wherever they live, so that all engines compute the same; where a reply really travels,
what was rounded to a code takes the form of that code, without any further loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedqhd.core.protocols import Array, Client, Expected, Federation, Payload
from fedqhd.federation.wrappers.base import Wrapper


class Code(NamedTuple):
    """Numbers of this type, of which the largest is at most `peak` units."""

    dtype: type[np.generic]
    peak: float


CODES: Mapping[str, Code] = {"float16": Code(np.float16, 2.0**15), "int8": Code(np.int8, 127.0)}


class Coded(NamedTuple):
    codes: Array
    unit: float


def encode(v: Array, code: Code) -> Coded | None:
    """The nearest numbers of the code; None where something is not finite."""
    real = as_real(v)
    top = float(np.abs(real).max()) if real.size else 0.0
    if not math.isfinite(top):
        return None
    mantissa, exponent = math.frexp(top / code.peak)
    unit = math.ldexp(1.0, exponent - (mantissa == 0.5)) if top else 1.0
    scaled = real.astype(np.float64) / unit
    rounded = np.rint(scaled) if np.issubdtype(code.dtype, np.integer) else scaled
    return Coded(rounded.astype(code.dtype), unit)


def decode(coded: Coded, dtype: np.dtype[np.generic]) -> Array:
    """As numbers of the type that they had."""
    real = np.zeros(0, dtype).real.dtype
    values = (coded.codes.astype(np.float64) * coded.unit).astype(real)
    return values.view(dtype) if dtype.kind == "c" else values


def as_real(v: Array) -> Array:
    """Complex numbers as pairs of real ones along the last axis."""
    return np.ascontiguousarray(v).view(v.real.dtype) if np.iscomplexobj(v) else v


def rounded(payload: Payload, expects: Mapping[str, Expected] | None, uplink: str) -> Payload:
    """A report in the numbers of a code. What clients do not vote on, sums and certainties, stays as it is."""
    if uplink not in CODES:
        return payload
    sent = {}
    for name, v in payload.items():
        coded = encode(v, CODES[uplink]) if expects is None or expects[name].votes else None
        sent[name] = v if coded is None else decode(coded, v.dtype)
    return sent


def shortened(v: Array, uplink: str) -> Coded | None:
    """What was rounded to a code, in that code; None where that would lose anything."""
    if uplink not in CODES or v.dtype.kind not in "fc" or not v.ndim:
        return None
    coded = encode(v, CODES[uplink])
    return coded if coded is not None and decode(coded, v.dtype).tobytes() == v.tobytes() else None


def sent_bytes(v: Array, uplink: str) -> int:
    """Of an array of a reply as it travels."""
    coded = shortened(v, uplink)
    return v.nbytes if coded is None else coded.codes.nbytes


class Rounded(Wrapper):
    """Any federation, with reports that are rounded to a code before they leave the client."""

    def __init__(self, inner: Federation, uplink: str) -> None:
        super().__init__(inner)
        self.uplink = uplink

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return rounded(self.inner.report(client, teacher), self.inner.expects(teacher), self.uplink)
