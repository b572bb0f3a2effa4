"""The QHD clients of the last exchange of a run: their features, and their weights before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedqhd.agents.model import Readout
from fedqhd.agents.policy import Policy, greedy_returns, load_policy
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap import bound as theory
from fedqhd.linalg.geometry import stacked_weights
from fedqhd.linalg.ridge import stacked
from fedqhd.runs.exchange import Exchange

BLOCK = 2048
Values = Callable[[Array], Array]
"""A function from scaled states (n, variables) to values (n, A)."""


@dataclass(frozen=True, eq=False)
class Member:
    """One client of an exchange.

    `before` and `after` are its weights before and after it compiled the teacher, as real arrays (p, A); `anchors` are
    the scaled states (m, variables) at which it did.
    """

    index: int
    encoder: BaseEncoder
    before: Array
    after: Array
    anchors: Array

    def features(self, Z: Array) -> Array:
        """Return the real features of scaled states, (n, p); a complex encoder has p = 2 D."""
        return np.asarray(stacked(self.encoder(Z)), np.float64)

    @property
    def p(self) -> int:
        """The number of real features."""
        return self.encoder.D * (2 if np.dtype(self.encoder.dtype).kind == "c" else 1)

    def project(self, states: Array, values: Values) -> Array:
        """Return the weights (p, A) whose function is nearest to `values`, in the mean square over scaled states."""

        def blocks() -> Iterator[tuple[Array, Array]]:
            for lo in range(0, len(states), BLOCK):
                yield self.features(states[lo : lo + BLOCK]), values(states[lo : lo + BLOCK])

        return theory.project(blocks())

    def q(self, Z: Array, W: Array) -> Array:
        """Return the values (n, A) of weights W (p, A) at scaled states. Features are computed in blocks."""
        return np.vstack([self.features(Z[lo : lo + BLOCK]) @ W for lo in range(0, len(Z), BLOCK)])

    def greedy(self, W: Array, scaler: StateScaler, c: Config, episodes: int, seed: int) -> float:
        """Return the mean return of the greedy policy of weights W (p, A) in the nominal environment."""
        D = self.encoder.D
        weights = W[:D] + 1j * W[D:] if self.p > D else W
        model = Readout(self.encoder, weights.astype(self.encoder.dtype))
        policy = Policy(model, scaler, c.env, action_repeat=c.action_repeat)
        env = policy.make_env()
        returns = greedy_returns(policy, env, episodes, seed, self.index)
        env.close()
        return float(returns.mean())


def members(run: str | Path, ex: Exchange) -> list[Member]:
    """Return the QHD clients of an exchange; other clients have no features to compile a teacher into.

    Raises:
        FedQHDError: If the model of a client is damaged, or if there are no QHD clients.
    """
    found = []
    for i, old in enumerate(ex.before):
        new = load_policy(run, i).model
        if isinstance(old, Readout) and isinstance(new, Readout):
            found.append(Member(i, old.encoder, stacked_weights(old.W), stacked_weights(new.W), ex.anchors))
    if not found:
        raise FedQHDError(f"run={str(run)!r} has no QHD client: only QHD clients compile a teacher by a ridge solve")
    return found
