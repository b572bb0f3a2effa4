"""What of a policy the formats are made of."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array


def kind_of(policy: Policy, format: str, able: Collection[str]) -> str:
    """ "fourier", "complex", "symbolic" or "mlp", unless the format cannot express it."""
    model = policy.model
    kind = model.encoder.name if isinstance(model, Readout) else model.kind
    if kind in able:
        return kind
    what = "a network" if isinstance(model, MLP) else f"encoder={kind!r}"
    raise FedQHDError(f"format={format} cannot express {what}: it can {', '.join(able)}")


def readout(policy: Policy) -> tuple[dict[str, Array], Array]:
    """The encoder's arrays, and W (D, A), by which Q = sum_d phi_d W_d with phi of cosines or of whole numbers alone:
    what the encoder divides by is in W."""
    model = policy.model
    assert isinstance(model, Readout)
    encoder, W = model.encoder, model.W
    terms = encoder.n + 1 if encoder.name == "symbolic" and encoder.n > 1 else 1
    return encoder.arrays, (W / (terms * np.sqrt(encoder.D))).astype(W.dtype)
