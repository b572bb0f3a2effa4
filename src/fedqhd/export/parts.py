"""The parts of a policy that all export formats use."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array


def kind_of(policy: Policy, format: str, supported: Collection[str]) -> str:
    """Return the kind of a policy's model: the name of its encoder, such as "fourier", or "mlp".

    Raises:
        FedQHDError: If the kind is not among those that the format supports.
    """
    model = policy.model
    kind = model.encoder.name if isinstance(model, Readout) else model.kind
    if kind in supported:
        return kind
    others = "a network" if isinstance(model, MLP) else f"a model of the class {type(model).__name__}"
    what = f"encoder={kind!r}" if isinstance(model, Readout) else others
    raise FedQHDError(f"format={format} cannot express {what}: it supports {', '.join(supported)}")


def readout(policy: Policy) -> tuple[dict[str, Array], Array]:
    """Return the arrays of the encoder, and the readout W, (D, A), for features without their normalisation.

    The factor by which the encoder divides its features is part of this W, so that Q = sum_d phi_d W_d with features
    phi_d that are plain cosines or integers.
    """
    model = policy.model
    assert isinstance(model, Readout)
    encoder, W = model.encoder, model.W
    terms = encoder.n + 1 if encoder.name == "symbolic" and encoder.n > 1 else 1
    return encoder.arrays, (W / (terms * np.sqrt(encoder.D))).astype(W.dtype)
