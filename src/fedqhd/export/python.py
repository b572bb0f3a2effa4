"""One Python file that needs nothing but Python; where numpy is, it is faster and takes batches."""

from __future__ import annotations

import base64
import textwrap

import numpy as np

from fedqhd.agents.model import MLP
from fedqhd.agents.policy import Policy
from fedqhd.core.protocols import Array
from fedqhd.export.parts import kind_of, readout

HEAD = '''"""ABOUT

action(obs) is the action for one observation, q(obs) its values. Needs nothing but Python; with numpy it is faster, and
q and action also take many observations, one a row.
"""

import array
import base64
import math
import sys

try:
    import numpy
except ImportError:
    numpy = None


def numbers(code, text):
    values = array.array(code, base64.b85decode(text))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def matrix(code, rows, columns, text):
    values = numbers(code, text)
    if numpy is not None:
        return numpy.asarray(values).reshape(rows, columns)
    return [values[i * columns : (i + 1) * columns] for i in range(rows)]


'''
TAIL = """

def q(obs):
    if numpy is None:
        return values([(float(x) - m) / s for x, m, s in zip(obs, SHIFT, SCALE)])
    obs = numpy.asarray(obs, float)
    Q = values_numpy(((numpy.atleast_2d(obs) - SHIFT) / SCALE).astype(numpy.float32))
    return Q if obs.ndim == 2 else Q[0]


def action(obs):
    if numpy is None:
        Q = q(obs)
        return Q.index(max(Q))
    return q(obs).argmax(axis=-1)
"""
FOURIER = """
def values_numpy(z):
    turns = z @ OMEGA + B
    angle = 2 * math.pi * (turns - numpy.floor(turns + 0.5))
    return numpy.cos(angle) @ W


def values(z):
    Q = [0.0] * ACTIONS
    for d in range(D):
        phi = math.cos(2 * math.pi * (B[d] + sum(x * row[d] for x, row in zip(z, OMEGA))))
        for a in range(ACTIONS):
            Q[a] += phi * W[d][a]
    return Q
"""
COMPLEX = """
def values_numpy(z):
    turns = z @ OMEGA
    angle = 2 * math.pi * (turns - numpy.floor(turns + 0.5))
    return numpy.cos(angle) @ W + numpy.sin(angle) @ W_IMAG


def values(z):
    Q = [0.0] * ACTIONS
    for d in range(D):
        angle = 2 * math.pi * sum(x * row[d] for x, row in zip(z, OMEGA))
        for a in range(ACTIONS):
            Q[a] += math.cos(angle) * W[d][a] + math.sin(angle) * W_IMAG[d][a]
    return Q
"""
SYMBOLIC = """
def values_numpy(z):
    level = numpy.clip(numpy.floor((z - FIRST) * PER_UNIT + 0.5), 0, LEVELS - 1).astype(int)
    bound = numpy.stack([ITEMS[j * LEVELS + level[:, j]] for j in range(N)]).astype(numpy.float32)
    return (bound.sum(axis=0) + (bound.prod(axis=0) if N > 1 else 0)) @ W


def values(z):
    levels = [min(max(math.floor((x - FIRST) * PER_UNIT + 0.5), 0), LEVELS - 1) for x in z]
    bound = [ITEMS[j * LEVELS + k] for j, k in enumerate(levels)]
    Q = [0.0] * ACTIONS
    for d in range(D):
        items = [item[d] for item in bound]
        phi = sum(items) + (math.prod(items) if N > 1 else 0)
        for a in range(ACTIONS):
            Q[a] += phi * W[d][a]
    return Q
"""
NETWORK = """
def values_numpy(z):
    for weight, bias in LAYERS[:-1]:
        z = numpy.maximum(z @ weight + bias, 0)
    weight, bias = LAYERS[-1]
    return z @ weight + bias


def values(z):
    for k, (weight, bias) in enumerate(LAYERS):
        z = [b + sum(x * row[i] for x, row in zip(z, weight)) for i, b in enumerate(bias)]
        if k + 1 < len(LAYERS):
            z = [max(x, 0.0) for x in z]
    return z
"""
CODES = {"f4": "f", "f8": "d", "i1": "b"}


def script(policy: Policy, about: str) -> bytes:
    kind = kind_of(policy, "numpy", ("fourier", "complex", "symbolic", "mlp"))
    lines = [
        _vector("SHIFT", np.asarray(policy.scaler.shift, np.float64)),
        _vector("SCALE", np.asarray(policy.scaler.scale, np.float64)),
    ]
    if kind == "mlp":
        assert isinstance(policy.model, MLP)
        pairs = [f"({_matrix(W)}, {_numbers(b)})" for W, b in policy.model.layers]
        lines.append(f"LAYERS = [{', '.join(pairs)}]")
    else:
        arrays, W = readout(policy)
        lines += [f"D, ACTIONS, N = {len(W)}, {W.shape[1]}, {policy.model.n}", f"W = {_matrix(W.real)}"]
        if kind == "symbolic":
            items, (first, per_unit) = arrays["items"], arrays["grid"]
            lines.append(f"FIRST, PER_UNIT, LEVELS = {float(first)!r}, {float(per_unit)!r}, {items.shape[1]}")
            lines.append(f"ITEMS = {_matrix(items.reshape(-1, items.shape[2]))}")
        else:
            lines.append(f"OMEGA = {_matrix(arrays['Omega'])}")
            lines.append(_vector("B", arrays["b"]) if kind == "fourier" else f"W_IMAG = {_matrix(W.imag)}")
    body = {"fourier": FOURIER, "complex": COMPLEX, "symbolic": SYMBOLIC, "mlp": NETWORK}[kind]
    about = textwrap.fill(about, 118)
    return (HEAD.replace("ABOUT", about) + "\n".join(lines) + "\n" + body + TAIL).encode()


def _text(x: Array) -> str:
    return repr(base64.b85encode(np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<")).tobytes()).decode())


def _numbers(x: Array) -> str:
    return f"numbers({CODES[x.dtype.str[1:]]!r}, {_text(x)})"


def _vector(name: str, x: Array) -> str:
    return f"{name} = {_numbers(x)}"


def _matrix(x: Array) -> str:
    return f"matrix({CODES[x.dtype.str[1:]]!r}, {x.shape[0]}, {x.shape[1]}, {_text(x)})"
