"""How the server makes one payload of many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedqhd.interfaces import Array, FedQHDError, Reply


def weighted_mean(replies: Sequence[Reply], name: str) -> Array:
    """sum_i pi_i P_i over the clients that replied, pi normalised over them.

    Summed in client order and double precision, since the bits of a sum depend on its order.
    """
    if not replies:
        raise FedQHDError("no client replied: there is nothing to average")
    total = float(sum(r.weight for r in replies))
    if not (np.isfinite(total) and total > 0 and all(r.weight >= 0 for r in replies)):
        raise FedQHDError(f"the clients' weights {[r.weight for r in replies]} must be at least 0, and not all 0")
    ordered = sorted(replies, key=lambda r: r.client)
    first = ordered[0].payload[name]
    shape = first.shape
    mean = np.zeros(shape, np.result_type(first, np.float64))
    for reply in ordered:
        value = reply.payload[name]
        if value.shape != shape:
            raise FedQHDError(
                f"client {reply.client} sent {name} of shape {value.shape}, client {ordered[0].client} of {shape}"
            )
        if not np.isfinite(value).all():
            raise FedQHDError(f"client {reply.client} sent a {name} that is not finite: its learning diverged")
        mean += reply.weight / total * value.astype(mean.dtype)
    return mean.astype(first.dtype)
