"""A near-optimal reference Q*: value iteration on a fine grid, with the environment itself as the model.

Each reference is checked against the environment before it is stored in the cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedqhd.agents.model import SavedModel
from fedqhd.agents.policy import Policy, greedy_returns
from fedqhd.core import rng
from fedqhd.core.blas import single_threaded
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, write_arrays
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap.grid import grid_points, interpolation, value_iteration

log = logging.getLogger(__name__)

CHECK_EPISODES = 100
CHECK_STATES = 500
ROLLOUT_STEPS = 1000
"""Rewards after so many steps are discounted by less than 0.99^1000 = 4e-5."""


@dataclass(frozen=True)
class GridSettings:
    """The grid on which values are computed.

    The box from `low` to `high` covers all states from which an episode can still go on. `points` is the number of grid
    points of each variable, `gamma` the discount, and `tol` the largest change of a value at which iteration stops.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[int, ...]
    gamma: float = 0.99
    tol: float = 1e-3

    def axes(self) -> list[Array]:
        """Return the grid points of each variable, in ascending order."""
        return [np.linspace(*a) for a in zip(self.low, self.high, self.points, strict=True)]


# A push changes CartPole's velocities by about 0.195 and 0.29 a step. The grid has the same spacing, so that a step
# from one grid point leads to another and interpolation does not blur the values.
GRIDS = {
    "CartPole-v1": GridSettings((-2.4, -3.5, -0.2095, -3.5), (2.4, 3.5, 0.2095, 3.5), (33, 37, 33, 25)),
    "MountainCar-v0": GridSettings((-1.2, -0.07), (0.6, 0.07), (401, 401)),
}


def has_reference(env_id: str, action_repeat: int) -> bool:
    """Return whether a reference Q* can be computed: only for environments in GRIDS, without repeated actions."""
    return env_id in GRIDS and action_repeat == 1


class GridModel(SavedModel):
    """A model that interpolates Q between the points of a grid. Like any other model, it takes scaled states."""

    kind: ClassVar[str] = "grid"

    def __init__(self, settings: GridSettings, Q: Array, scaler: StateScaler) -> None:
        self.axes = settings.axes()
        self.Q, self.scaler = Q, scaler

    @property
    def n(self) -> int:
        return len(self.axes)

    @property
    def actions(self) -> int:
        return int(self.Q.shape[1])

    def q(self, Z: Array) -> Array:
        return interpolation(self.axes, self.scaler.raw(Z)) @ self.Q

    def arrays(self) -> dict[str, Array]:
        return {"Q": self.Q}


def transitions(env: Env, states: Array) -> tuple[Array, Array, Array]:
    """Take every action once from every state.

    Args:
        env: An environment whose state can be set, as that of Gymnasium's classic-control tasks can.
        states: Raw states, (n, variables).

    Returns:
        Rewards (n, A), whether the episode terminated (n, A), and the next raw states (n, A, variables).
    """
    world: Any = env.unwrapped
    actions = int(world.action_space.n)
    world.reset(seed=0)
    r, ended = np.zeros((len(states), actions), np.float32), np.zeros((len(states), actions), bool)
    after = np.zeros((len(states), actions, states.shape[1]))
    for i, s in enumerate(states):
        for a in range(actions):
            world.state, world.steps_beyond_terminated = s.copy(), None
            after[i, a], r[i, a], ended[i, a], _, _ = world.step(a)
    return r, ended, after


def solve(env_id: str, settings: GridSettings) -> Array:
    """Return Q* at the points of the grid, (points, A), by value iteration."""
    env = make_env(env_id)
    axes = settings.axes()
    states = grid_points(axes)
    r, ended, after = transitions(env, states)
    env.close()
    P = [interpolation(axes, after[:, a]) for a in range(r.shape[1])]
    # No value exceeds the best reward received for ever. Starting there, values only decrease.
    best = np.float32(max(float(r.max()) / (1 - settings.gamma), 0.0))
    discount = np.where(ended, 0.0, settings.gamma).astype(np.float32)
    return value_iteration(r, discount, P, np.full(len(states), best), settings.tol)[0]


def bellman_error(policy: Policy, states: Array, gamma: float) -> Array:
    """Return |r + gamma max Q(s') - Q(s)| at raw states, (n, A): the error of Q between the points of the grid."""
    env = make_env(policy.env)
    r, ended, after = transitions(env, states)
    env.close()
    next_value = np.stack([policy.q(after[:, a]).max(axis=1) for a in range(r.shape[1])], axis=1)
    return np.abs(r + gamma * ~ended * next_value - policy.q(states))


def discounted_returns(policy: Policy, states: Array, gamma: float, steps: int = ROLLOUT_STEPS) -> Array:
    """Play the greedy policy and return the discounted return from each raw state, (n,).

    Args:
        policy: The policy to play.
        states: Raw states to start from, (n, variables). All episodes advance together, one batch of Q a step.
        gamma: The discount.
        steps: The length at which an episode is cut off.
    """
    worlds: list[Any] = [make_env(policy.env).unwrapped for _ in states]
    for world, s in zip(worlds, states, strict=True):
        world.reset(seed=0)
        world.state = s.copy()
    s, total, weight = states.copy(), np.zeros(len(states)), np.ones(len(states))
    for _ in range(steps):
        alive = np.flatnonzero(weight)
        if not len(alive):
            break
        for i, a in zip(alive, policy.q(s[alive]).argmax(axis=1), strict=True):
            s[i], r, ended, _, _ = worlds[i].step(int(a))
            total[i] += weight[i] * r
            weight[i] *= 0.0 if ended else gamma
    return total


def cache_folder() -> Path:
    """Return the folder of stored references: in $FEDQHD_CACHE, else in the cache folder of the user."""
    root = os.environ.get("FEDQHD_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fedqhd")
    return Path(root) / "reference"


def settings_for(env_id: str, gamma: float = 0.99) -> GridSettings:
    """Return the grid of an environment, for values discounted by gamma.

    Raises:
        FedQHDError: If there is no grid for the environment, or if gamma is not below 1.
    """
    if env_id not in GRIDS:
        raise FedQHDError(
            f"env={env_id!r} has no reference Q*, only {' and '.join(GRIDS)} have one: give a reference, a "
            "finished run whose Q is used instead"
        )
    if gamma >= 1:
        raise FedQHDError(
            f"gamma={gamma} has no finite reference Q*: choose gamma below 1, or give a finished run as reference"
        )
    return replace(GRIDS[env_id], gamma=gamma)


def path_of(env_id: str, settings: GridSettings) -> Path:
    """Return the cache file of a reference; each combination of environment and settings has its own."""
    key = hashlib.sha256(json.dumps([env_id, asdict(settings)], sort_keys=True).encode()).hexdigest()[:12]
    return cache_folder() / f"{env_id.replace('/', '-')}-{key}.npz"


def reference(env_id: str, settings: GridSettings | None = None) -> tuple[Policy, dict[str, Any]]:
    """Return the greedy policy of Q*, computing Q* if it is not in the cache.

    Args:
        env_id: An environment in GRIDS.
        settings: The grid, or None for that of GRIDS.

    Returns:
        The policy, and the results of `check` together with the settings of the grid.

    Raises:
        FedQHDError: If the greedy policy does not solve the task.
    """
    settings = settings or settings_for(env_id)
    path = path_of(env_id, settings)
    low, high = np.array(settings.low), np.array(settings.high)
    scaler = StateScaler(np.zeros(len(low)), np.ones(len(low)), low, high)
    if path.exists():
        arrays, about = read_arrays(path)
        return Policy(GridModel(settings, arrays["Q"], scaler), scaler, env_id), about
    log.warning("computing the reference Q* of %s; it is cached in %s for the next time", env_id, path)
    with single_threaded():
        policy = Policy(GridModel(settings, solve(env_id, settings), scaler), scaler, env_id)
        about = check(policy, settings)
    write_arrays(path, policy.model.arrays(), {"env": env_id, "settings": asdict(settings), **about})
    return policy, read_arrays(path)[1]


def check(policy: Policy, settings: GridSettings) -> dict[str, Any]:
    """Measure how near to optimal a reference is.

    Returns:
        The return of its greedy policy, which must solve the task; its Bellman error at random states; and, at the same
        states, the values that it predicts ("promised") beside the discounted returns that its policy earns. No policy
        earns more than Q*.

    Raises:
        FedQHDError: If the mean return is below the threshold at which the task counts as solved.
    """
    env = make_env(policy.env)
    threshold = env.spec.reward_threshold if env.spec else None
    returns = greedy_returns(policy, env, CHECK_EPISODES, 0, rng.PUBLIC)
    env.close()
    if threshold is not None and returns.mean() < threshold:
        raise FedQHDError(
            f"the reference Q* of env={policy.env!r} with points={list(settings.points)} returns {returns.mean():.1f} "
            f"where {threshold} solves the task: choose a finer grid"
        )
    states = rng.generator(0, rng.PUBLIC, "reference").uniform(
        settings.low, settings.high, (CHECK_STATES, len(settings.low))
    )
    error = bellman_error(policy, states, settings.gamma)
    promised, real = policy.q(states).max(axis=1), discounted_returns(policy, states, settings.gamma)
    return {
        "greedy_return": float(returns.mean()),
        "greedy_return_lowest": float(returns.min()),
        "solved_at": threshold,
        "bellman_error_mean": float(error.mean()),
        "bellman_error_max": float(error.max()),
        "promised_mean": float(promised.mean()),
        "earned_mean": float(real.mean()),
        "promised_off_by": float(np.abs(promised - real).mean()),
    }
