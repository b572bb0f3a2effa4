"""The scaling of states, which is fixed, the same for all clients and saved with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.core.settings import Settings, setting
from fedqhd.envs.adapt import Env
from fedqhd.envs.rollouts import ROLLOUT_STEPS, random_states

SPAN = 4.0
"""States with known bounds are scaled to [-SPAN, SPAN], which is about the range that scaling by the standard deviation
gives, so that a bandwidth means much the same with either way of scaling."""
ABSURD = 1e6
"""A declared bound beyond this is ignored, because it says nothing about the states."""
SPREAD = 2.5
"""The median distance between two states of random rollouts after scaling=auto. It suits the default bandwidth of 1.5,
as experiments on Acrobot and MountainCar showed."""


@dataclass(frozen=True)
class ScalingSettings(Settings):
    """How states are scaled."""

    title: ClassVar[str] = "scaling of states"

    scaling: str = setting(
        "auto",
        "scale states by random rollouts (auto: also by their distances), the environment's box, given bounds, or not",
        choices=("auto", "rollout", "box", "bounds", "none"),
    )
    scale_low: tuple[float, ...] = setting(
        (), "scaling=bounds: the value of each state variable that becomes -4", only={"scaling": "bounds"}
    )
    scale_high: tuple[float, ...] = setting(
        (), "scaling=bounds: the value of each state variable that becomes 4", only={"scaling": "bounds"}
    )
    rollout_steps: int = setting(
        ROLLOUT_STEPS, "random steps from which the scaling and the anchors are computed; use fewer if a step is slow"
    )


class StateScaler(NamedTuple):
    """The scaling z = (s - shift) / scale; all arrays are (n,).

    `low` and `high` are the bounds of the box in which states are expected, in raw units.
    """

    shift: Array
    scale: Array
    low: Array
    high: Array

    def __call__(self, s: Array) -> Array:
        return ((s - self.shift) / self.scale).astype(np.float32)

    def check(self) -> None:
        """Raise ValueError unless the arrays are finite numbers of one length and the scale is positive."""
        for name, x in self._asdict().items():
            if x.dtype.kind not in "iuf" or x.ndim != 1 or x.shape != self.shift.shape or not np.isfinite(x).all():
                raise ValueError(f"the scaler's {name} is not a row of finite numbers, one per state variable")
        if not (self.scale > 0).all():
            raise ValueError(f"the scaler's scale has the value {self.scale.min()}, which is not positive")
        with np.errstate(over="ignore"):
            if not np.isfinite([self(self.low), self(self.high)]).all():
                raise ValueError("the scaler scales the box of states beyond the finite numbers of float32")

    def raw(self, z: Array) -> Array:
        """Return the raw states that were scaled to z, up to the rounding of z to float32."""
        return np.asarray(z, np.float64) * self.scale + self.shift


def make_scaler(
    env: Env,
    scaling: str,
    low: tuple[float, ...],
    high: tuple[float, ...],
    rng: np.random.Generator,
    steps: int = ROLLOUT_STEPS,
) -> StateScaler:
    """Return the scaler of an environment.

    Args:
        env: The environment, with vector observations.
        scaling: "rollout" scales by the mean and standard deviation of random rollouts. "auto" does the same and then
            scales all variables by one factor, so that distances do not depend on the number of variables. "box" scales
            the bounds of the environment to [-SPAN, SPAN], and "bounds" scales `low` and `high` to them. "none" leaves
            states as they are.
        low, high: The bounds of each variable for scaling="bounds".
        rng: The generator of the rollouts.
        steps: Number of random steps.
    """
    states = random_states(env, steps, rng)
    if not np.isfinite(states).all():
        bad = states[~np.isfinite(states).all(axis=1)][0]
        raise FedQHDError(f"the environment returned the state {bad.tolist()}, which is not finite")
    seen_low, seen_high = states.min(axis=0), states.max(axis=0)
    margin = (seen_high - seen_low) / 2
    space = env.observation_space
    assert isinstance(space, Box)
    # Infinite or absurd bounds (velocities of CartPole) are replaced by the range of random rollouts, twice as wide.
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
    if scaling == "none":
        shift, scale = np.zeros(states.shape[1]), np.ones(states.shape[1])
    elif scaling in ("auto", "rollout"):
        shift, scale = states.mean(axis=0), states.std(axis=0)
    else:
        shift, scale = (box_low + box_high) / 2, (box_high - box_low) / (2 * SPAN)
    if scaling == "auto":
        # A bit that is rarely set has a tiny standard deviation: do not scale it beyond the box.
        bits = (space.low == 0) & (space.high == 1) & (space.dtype.kind in "biu")
        scale = np.where(bits, np.maximum(scale, 1 / (2 * SPAN)), scale)
    scale = np.where(scale > 1e-8, scale, 1.0)  # do not scale a variable that never changed
    if scaling == "auto":
        symbolic = env.get_wrapper_attr("symbols") if env.has_wrapper_attr("symbols") else np.zeros(len(shift), bool)
        pairs = (rng.permutation(states) - rng.permutation(states))[:, ~symbolic] / scale[~symbolic]
        apart = np.median(np.linalg.norm(pairs, axis=1))
        # Symbols have no values in between, so they are scaled to the full span.
        shift = np.where(symbolic, 0.5, shift)
        scale = np.where(symbolic, 1 / (2 * SPAN), scale * (apart / SPREAD or 1.0))
    return StateScaler(shift, scale, box_low, box_high)
