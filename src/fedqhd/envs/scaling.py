"""The public scaling of states: fixed, the same for every client, saved with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import SPAN, Array
from fedqhd.core.settings import Settings, setting
from fedqhd.envs.rollouts import ROLLOUT_STEPS, random_states

ABSURD = 1e6
"""A declared bound beyond this says nothing about where states are."""
SPREAD = 2.5
"""How far apart two states of random rollouts are put by scaling=auto, in the median: with the default bandwidth of 1.5
about what Acrobot and MountainCar were found to like."""


@dataclass(frozen=True)
class ScalingSettings(Settings):
    """How states are scaled."""

    title: ClassVar[str] = "scaling of states"

    scaling: str = setting(
        "auto",
        "scale states by random rollouts (auto: and their distance), the environment's box, or given bounds",
        choices=("auto", "rollout", "box", "bounds"),
    )
    scale_low: tuple[float, ...] = setting(
        (), "scaling=bounds: the value of each state variable that becomes -4", only={"scaling": "bounds"}
    )
    scale_high: tuple[float, ...] = setting(
        (), "scaling=bounds: the value of each state variable that becomes 4", only={"scaling": "bounds"}
    )
    rollout_steps: int = setting(
        ROLLOUT_STEPS, "random steps by which states are scaled and anchors found; fewer if a step is slow"
    )


class StateScaler(NamedTuple):
    """z = (s - shift) / scale: fixed, public, the same for every client, saved with the model.

    low and high bound, in raw units, the box in which states are expected.
    """

    shift: Array
    scale: Array
    low: Array
    high: Array

    def __call__(self, s: Array) -> Array:
        return ((s - self.shift) / self.scale).astype(np.float32)

    def raw(self, z: Array) -> Array:
        """The states that were scaled to z, to its float32."""
        return np.asarray(z, np.float64) * self.scale + self.shift


def make_scaler(
    env: gymnasium.Env[Array, np.int64],
    scaling: str,
    low: tuple[float, ...],
    high: tuple[float, ...],
    rng: np.random.Generator,
    steps: int = ROLLOUT_STEPS,
) -> StateScaler:
    """`rollout`: mean and standard deviation of random rollouts. `auto`: the same, then all variables by one factor, so
    that states are as far apart whatever their number. `box`: the environment's bounds to [-SPAN, SPAN]. `bounds`: the
    given low and high to [-SPAN, SPAN]."""
    states = random_states(env, steps, rng)
    if not np.isfinite(states).all():
        bad = states[~np.isfinite(states).all(axis=1)][0]
        raise FedQHDError(f"the environment shows the state {bad.tolist()}, which is not finite")
    seen_low, seen_high = states.min(axis=0), states.max(axis=0)
    margin = (seen_high - seen_low) / 2
    space = env.observation_space
    assert isinstance(space, Box)
    # Infinite or absurd bounds (CartPole's velocities) give way to what random rollouts reach, and half as much again.
    box_low = np.where(np.abs(space.low) < ABSURD, space.low, seen_low - margin).astype(np.float64)
    box_high = np.where(np.abs(space.high) < ABSURD, space.high, seen_high + margin).astype(np.float64)
    if scaling == "bounds":
        n = states.shape[1]
        if len(low) != n or len(high) != n:
            raise FedQHDError(
                f"scale_low has {len(low)} and scale_high {len(high)} values: scaling=bounds needs {n} of each"
            )
        box_low, box_high = np.array(low, float), np.array(high, float)
        if not np.all(box_low < box_high):
            raise FedQHDError(f"scale_low={list(low)} must be below scale_high={list(high)} in every variable")
    if scaling in ("auto", "rollout"):
        shift, scale = states.mean(axis=0), states.std(axis=0)
    else:
        shift, scale = (box_low + box_high) / 2, (box_high - box_low) / (2 * SPAN)
    if scaling == "auto":
        # A bit that is hardly ever set is not worth more than the whole box.
        bits = (space.low == 0) & (space.high == 1) & (space.dtype.kind in "biu")
        scale = np.where(bits, np.maximum(scale, 1 / (2 * SPAN)), scale)
    scale = np.where(scale > 1e-8, scale, 1.0)  # a variable that never moved stays as it is
    if scaling == "auto":
        symbolic = env.get_wrapper_attr("symbols") if env.has_wrapper_attr("symbols") else np.zeros(len(shift), bool)
        pairs = (rng.permutation(states) - rng.permutation(states))[:, ~symbolic] / scale[~symbolic]
        apart = np.median(np.linalg.norm(pairs, axis=1))
        # Between two values of a symbol there is nothing, so they are put as far apart as anything is.
        shift = np.where(symbolic, 0.5, shift)
        scale = np.where(symbolic, 1 / (2 * SPAN), scale * (apart / SPREAD or 1.0))
    return StateScaler(shift, scale, box_low, box_high)
