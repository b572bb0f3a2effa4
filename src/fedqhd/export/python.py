"""Export as one Python file without dependencies. If numpy is installed, it is faster and accepts batches."""

from __future__ import annotations

import base64
import textwrap

import numpy as np

from fedqhd.agents.model import MLP
from fedqhd.agents.policy import Policy
from fedqhd.core.protocols import Array
from fedqhd.core.source import Code, number, python_docstring
from fedqhd.core.templates import render
from fedqhd.export.parts import kind_of, readout

CODES = {"f4": "f", "f8": "d", "i1": "b"}
"""Type codes of the module `array` for the types of numpy."""


def script(policy: Policy, about: str, name: str) -> bytes:
    """Return the policy as one Python file.

    Args:
        policy: Any policy except one with the user's own encoder.
        about: A sentence about the origin of the policy, for the docstring at the top.
        name: The name of the policy, which the file does not need, because a module has its own names.

    Returns:
        The encoded text of the file.

    Raises:
        FedQHDError: If the policy has another encoder.
    """
    kind = kind_of(policy, "numpy", ("fourier", "complex", "symbolic", "mlp"))
    constants = {
        "SHIFT": _numbers(np.asarray(policy.scaler.shift, np.float64)),
        "SCALE": _numbers(np.asarray(policy.scaler.scale, np.float64)),
    }
    if kind == "mlp":
        assert isinstance(policy.model, MLP)
        pairs = [f"({_matrix(W)}, {_numbers(b)})" for W, b in policy.model.layers]
        constants["LAYERS"] = f"[{', '.join(pairs)}]"
    else:
        arrays, W = readout(policy)
        constants["D, ACTIONS, N"] = f"{len(W)}, {W.shape[1]}, {policy.model.n}"
        constants["W"] = _matrix(W.real)
        if kind == "symbolic":
            items, (first, per_unit) = arrays["items"], arrays["grid"]
            constants["FIRST, PER_UNIT, LEVELS"] = f"{number(first)}, {number(per_unit)}, {items.shape[1]}"
            constants["ITEMS"] = _matrix(items.reshape(-1, items.shape[2]))
        else:
            constants["OMEGA"] = _matrix(arrays["Omega"])
            constants |= {"B": _numbers(arrays["b"])} if kind == "fourier" else {"W_IMAG": _matrix(W.imag)}
    return render(
        "export/templates/policy.py.jinja", about=python_docstring(textwrap.fill(about, 118)), kind=kind,
        constants={Code(key): Code(value) for key, value in constants.items()},
    ).encode()  # fmt: skip


def _text(x: Array) -> str:
    return repr(base64.b85encode(np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<")).tobytes()).decode())


def _numbers(x: Array) -> str:
    return f"numbers({CODES[x.dtype.str[1:]]!r}, {_text(x)})"


def _matrix(x: Array) -> str:
    return f"matrix({CODES[x.dtype.str[1:]]!r}, {x.shape[0]}, {x.shape[1]}, {_text(x)})"
