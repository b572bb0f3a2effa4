"""What is left of a policy when the numbers it is made of are damaged.

A share of a hypervector's components is multiplied by 0, by -1, or by 1 + N(0, 1); since Q = Re(Phi^H W), that is the
same as damage to rows of W. Or W is kept in fewer bits. A network's weights get the same treatment, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import Policy, greedy_returns, load_policy
from fedqhd.core import rng
from fedqhd.core.files import write_bytes
from fedqhd.core.protocols import Array, Model

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BITS = (32, 8, 4, 2, 1)
AMOUNTS: Mapping[str, Sequence[float]] = {"zeroed": SHARES, "flipped": SHARES[:6], "noised": SHARES, "bits": BITS}
EPISODES = 10


def factors(damage: str, share: float, n: int, own: np.random.Generator) -> Array:
    """By what each of n components is multiplied."""
    hit = own.permutation(n) < round(share * n)
    by = {"zeroed": np.zeros(n), "flipped": -np.ones(n), "noised": 1.0 + own.normal(size=n)}[damage]
    return np.where(hit, by, 1.0)


def quantise(w: Array, bits: int) -> Array:
    """The nearest of 2^bits - 1 values that are symmetric about 0 and reach the largest; one bit is the sign times the
    mean magnitude. 32 bits are the weights as they are."""
    if bits >= 32:
        return w
    if np.iscomplexobj(w):
        return quantise(w.real, bits) + 1j * quantise(w.imag, bits)
    if bits == 1:
        return np.where(w < 0, -1.0, 1.0) * np.abs(w).mean()
    levels = 2 ** (bits - 1) - 1
    step = np.abs(w).max() / levels
    return np.round(w / step) * step if step > 0 else w


def damaged(model: Model, damage: str, amount: float, own: np.random.Generator) -> Model:
    """A row of W is a component of the hypervector; a network's components are its weights."""

    def treat(w: Array, components: tuple[int, ...]) -> Array:
        if damage == "bits":
            return quantise(w, int(amount)).astype(w.dtype)
        by = factors(damage, amount, int(np.prod(components)), own)
        return (w * by.reshape(components)).astype(w.dtype)

    if isinstance(model, Readout):
        return Readout(model.encoder, treat(model.W, (len(model.W), 1)))
    if isinstance(model, MLP):
        return MLP([(treat(w, w.shape).T, b) for w, b in model.layers])
    raise TypeError(f"{type(model).__name__} has no components")


def endure(policy: Policy, damage: str, amount: float, seed: int, episodes: int = EPISODES) -> float:
    """Mean greedy return of a policy so damaged; which components are hit is drawn from the seed."""
    own = rng.generator(seed, rng.PUBLIC, f"damage-{damage}")
    hurt = Policy(damaged(policy.model, damage, amount, own), policy.scaler, policy.env, 0.0, policy.action_repeat)
    env = hurt.make_env()
    value = float(greedy_returns(hurt, env, episodes, seed, 0).mean())
    env.close()
    return value


def endurance(run: Path, kept: Path, seed: int) -> list[dict[str, Any]]:
    """All damages of a finished run's first client; measured once, then read from `kept`."""
    if not kept.exists():
        policy = load_policy(run)
        rows = [
            {"damage": damage, "amount": amount, "greedy_return": endure(policy, damage, amount, seed)}
            for damage, amounts in AMOUNTS.items() for amount in amounts
        ]  # fmt: skip
        write_bytes(kept, json.dumps(rows).encode())
    return json.loads(kept.read_text())
