"""Shorter replies: W or Q in 16 or 8 bits, in units of a power of two that each array has of its own.

Clients round their reports on every engine, so that all engines compute the same numbers. If a reply is sent over a
network, the rounded numbers travel in their short form, without further loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedqhd.core.protocols import Array, Client, Expected, Federation, Payload
from fedqhd.federation.wrappers.base import Wrapper


class Code(NamedTuple):
    """A number format: the type, and the largest absolute value in units."""

    dtype: type[np.generic]
    peak: float


CODES: Mapping[str, Code] = {"float16": Code(np.float16, 2.0**15), "int8": Code(np.int8, 127.0)}


class Coded(NamedTuple):
    """An array in a short format; its values are `codes` times `unit`."""

    codes: Array
    unit: float


def encode(v: Array, code: Code) -> Coded | None:
    """Round an array to the nearest numbers of a format; None if a number is not finite."""
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
    """Return the values as numbers of type `dtype`, real or complex."""
    real = np.zeros(0, dtype).real.dtype
    values = (coded.codes.astype(np.float64) * coded.unit).astype(real)
    return values.view(dtype) if dtype.kind == "c" else values


def as_real(v: Array) -> Array:
    """Return a complex array (..., k) as real pairs (..., 2k); a real array is returned as it is."""
    return np.ascontiguousarray(v).view(v.real.dtype) if np.iscomplexobj(v) else v


def rounded(payload: Payload, expects: Mapping[str, Expected] | None, uplink: str) -> Payload:
    """Round the arrays of a report.

    Args:
        payload: The report.
        expects: The format of the report. Arrays without `votes`, such as sums and precisions, are not rounded; None
            rounds all arrays.
        uplink: A key of `CODES`, or "full" for no rounding.
    """
    if uplink not in CODES:
        return payload
    sent = {}
    for name, v in payload.items():
        coded = encode(v, CODES[uplink]) if expects is None or expects[name].votes else None
        sent[name] = v if coded is None else decode(coded, v.dtype)
    return sent


def shortened(v: Array, uplink: str) -> Coded | None:
    """Return an array that was rounded by `rounded` in its short form; None if that would lose information."""
    if uplink not in CODES or v.dtype.kind not in "fc" or not v.ndim:
        return None
    coded = encode(v, CODES[uplink])
    return coded if coded is not None and decode(coded, v.dtype).tobytes() == v.tobytes() else None


def sent_bytes(v: Array, uplink: str) -> int:
    """Return the number of bytes that an array of a reply takes when it is sent."""
    coded = shortened(v, uplink)
    return v.nbytes if coded is None else coded.codes.nbytes


class Rounded(Wrapper):
    """A federation whose reports are rounded before they leave the client."""

    def __init__(self, inner: Federation, uplink: str) -> None:
        super().__init__(inner)
        self.uplink = uplink

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        return rounded(self.inner.report(client, teacher), self.inner.expects(teacher), self.uplink)
