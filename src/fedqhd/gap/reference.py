"""A reference Q*, near optimal and checked: value iteration on a fine grid, the environment itself being the model."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd.agents.policy import Policy, greedy_returns
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, write_arrays
from fedqhd.core.protocols import Array
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler
from fedqhd.gap.grid import grid_points, interpolation, value_iteration

CHECK_EPISODES = 100
CHECK_STATES = 500
EARN_STEPS = 1000
"""Of what comes later, less than 0.99^1000 = 4e-5 counts."""


@dataclass(frozen=True)
class GridSettings:
    """The box in which values are computed, and how finely: that of the states that can be met, or still be saved."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[int, ...]
    gamma: float = 0.99
    tol: float = 1e-3

    def axes(self) -> list[Array]:
        return [np.linspace(*a) for a in zip(self.low, self.high, self.points, strict=True)]


# A push changes CartPole's velocities by about 0.195 and 0.29 a step. Those are the spacings of its grid: a state then
# lands on the next points, where values are not blurred by interpolation.
GRIDS = {
    "CartPole-v1": GridSettings((-2.4, -3.5, -0.2095, -3.5), (2.4, 3.5, 0.2095, 3.5), (33, 37, 33, 25)),
    "MountainCar-v0": GridSettings((-1.2, -0.07), (0.6, 0.07), (401, 401)),
}


def has_reference(env_id: str, action_repeat: int) -> bool:
    """Whether we have a Q* of our own: of the environment as it is, where every step has its action."""
    return env_id in GRIDS and action_repeat == 1


class GridModel:
    """Q on a grid, interpolated; scaled states in, so that it plays like any other model."""

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

    def about(self) -> dict[str, Any]:
        return {}


def transitions(env: gymnasium.Env[Array, np.int64], states: Array) -> tuple[Array, Array, Array]:
    """(r, terminated, s') of each action from each raw state: (n, A), (n, A), (n, A, n_vars). One real step each."""
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
    env = make_env(env_id)
    axes = settings.axes()
    states = grid_points(axes)
    r, ended, after = transitions(env, states)
    env.close()
    P = [interpolation(axes, after[:, a]) for a in range(r.shape[1])]
    # Nothing is worth more than its best reward for ever: from above, values only fall.
    best = np.float32(max(float(r.max()) / (1 - settings.gamma), 0.0))
    discount = np.where(ended, 0.0, settings.gamma).astype(np.float32)
    return value_iteration(r, discount, P, np.full(len(states), best), settings.tol)[0]


def bellman_error(policy: Policy, states: Array, gamma: float) -> Array:
    """|r + gamma max Q(s') - Q(s)| at raw states, (n, A): what is wrong with Q between the grid's points."""
    env = make_env(policy.env)
    r, ended, after = transitions(env, states)
    env.close()
    next_value = np.stack([policy.q(after[:, a]).max(axis=1) for a in range(r.shape[1])], axis=1)
    return np.abs(r + gamma * ~ended * next_value - policy.q(states))


def earned(policy: Policy, states: Array, gamma: float, steps: int = EARN_STEPS) -> Array:
    """The discounted return that the greedy policy really earns from each raw state, (n,); all are played in step."""
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
    root = os.environ.get("FEDQHD_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fedqhd")
    return Path(root) / "reference"


def settings_for(env_id: str, gamma: float = 0.99) -> GridSettings:
    """The grid of an environment that has one, for values discounted by gamma."""
    if env_id not in GRIDS:
        raise FedQHDError(
            f"env={env_id!r} has no reference Q* here, only {' and '.join(GRIDS)}: give --reference RUN, a finished "
            "run whose Q stands for it"
        )
    if gamma >= 1:
        raise FedQHDError(f"gamma={gamma} gives no finite reference Q*: it must be below 1, or give --reference RUN")
    return replace(GRIDS[env_id], gamma=gamma)


def path_of(env_id: str, settings: GridSettings) -> Path:
    """Where it is kept: a file for each environment and settings."""
    key = hashlib.sha256(json.dumps([env_id, asdict(settings)], sort_keys=True).encode()).hexdigest()[:12]
    return cache_folder() / f"{env_id.replace('/', '-')}-{key}.npz"


def reference(env_id: str, settings: GridSettings | None = None) -> tuple[Policy, dict[str, Any]]:
    """The policy of Q* and what was checked of it; made once and kept on disk under its settings."""
    settings = settings or settings_for(env_id)
    path = path_of(env_id, settings)
    low, high = np.array(settings.low), np.array(settings.high)
    scaler = StateScaler(np.zeros(len(low)), np.ones(len(low)), low, high)
    if path.exists():
        arrays, about = read_arrays(path)
        return Policy(GridModel(settings, arrays["Q"], scaler), scaler, env_id), about
    with threadpool_limits(1):
        policy = Policy(GridModel(settings, solve(env_id, settings), scaler), scaler, env_id)
        about = check(policy, settings)
    write_arrays(path, policy.model.arrays(), {"env": env_id, "settings": asdict(settings), **about})
    return policy, read_arrays(path)[1]


def check(policy: Policy, settings: GridSettings) -> dict[str, Any]:
    """Is it near optimal? By the return of its greedy policy, which must solve the task, by its Bellman error between
    the points of the grid, and by what it promises beside what its policy earns: no policy earns more than Q*."""
    env = make_env(policy.env)
    threshold = env.spec.reward_threshold if env.spec else None
    returns = greedy_returns(policy, env, CHECK_EPISODES, 0, rng.PUBLIC)
    env.close()
    if threshold is not None and returns.mean() < threshold:
        raise FedQHDError(
            f"the reference Q* of env={policy.env!r} with points={list(settings.points)} returns {returns.mean():.1f} "
            f"where {threshold} solves the task: choose a finer grid"
        )
    own = rng.generator(0, rng.PUBLIC, "reference")
    states = own.uniform(settings.low, settings.high, (CHECK_STATES, len(settings.low)))
    error = bellman_error(policy, states, settings.gamma)
    promised, real = policy.q(states).max(axis=1), earned(policy, states, settings.gamma)
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
