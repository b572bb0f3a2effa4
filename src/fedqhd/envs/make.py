"""Environments with vector observations and discrete actions, and changes to their physics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.protocols import Array
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.envs.adapt import as_vectors, make


@dataclass(frozen=True)
class EnvironmentSettings(Settings):
    """How the environment of each client is played."""

    title: ClassVar[str] = "environment"

    action_repeat: int = setting(1, "steps of the environment for which an action is kept")
    dynamics: tuple[str, ...] = setting(
        (), "worlds that differ: NAME=LOW:HIGH, drawn for each client, e.g. length=0.3:1"
    )
    gamma: float = setting(0.99, "discount from one action to the next", at_least=0, at_most=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        for spec in c.dynamics:
            parse_range(spec)


def make_env(
    env_id: str, *, repeat: int = 1, dynamics: Mapping[str, float] | None = None, **kwargs: Any
) -> gymnasium.Env[Array, np.int64]:
    """An environment with vector observations and discrete actions, or why it is none. `env_id` is a Gymnasium id or
    `module:Env`, a class or a function that makes one. Other observations are flattened, symbols as one-hot vectors.

    `repeat` keeps every action for so many steps. `dynamics` sets constants of its physics: arguments of its
    constructor (LunarLander's gravity and wind) or numbers that it holds (CartPole's length, Acrobot's LINK_MASS_1,
    MountainCar's force).
    """
    env = make(env_id, **kwargs)
    if dynamics:
        env = changed(env, env_id, dynamics, kwargs)
    env = as_vectors(env, env_id)
    return ActionRepeat(env, repeat) if repeat > 1 else env


class ActionRepeat(gymnasium.Wrapper[Array, np.int64, Array, np.int64]):
    """Keeps an action for `repeat` steps and adds up their rewards; `info["env_steps"]` says how many there were.

    Where one step hardly matters, the values of actions hardly differ, and less than the error of any estimate.
    """

    def __init__(self, env: gymnasium.Env[Array, np.int64], repeat: int) -> None:
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for step in range(1, self.repeat + 1):  # noqa: B007
            state, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return state, total, terminated, truncated, {**info, "env_steps": step}


Range = tuple[str, float, float]


def _constants(env: gymnasium.Env[Any, Any]) -> tuple[set[str], set[str]]:
    """What of an environment's physics can be changed: arguments of its constructor, and numbers that it holds."""
    arguments = set(inspect.signature(type(env.unwrapped).__init__).parameters) - {"self", "render_mode"}
    return arguments, {k for k in dir(env.unwrapped) if isinstance(getattr(env.unwrapped, k, None), float | int)}


def parse_range(spec: str) -> Range:
    """(name, low, high) of `name=low:high`."""
    name, _, bounds = spec.partition("=")
    low, _, high = bounds.partition(":")
    try:
        parsed = name, float(low), float(high)
        if name and math.isfinite(parsed[1]) and math.isfinite(parsed[2]) and parsed[1] <= parsed[2]:
            return parsed
    except ValueError:
        pass
    raise FedQHDError(f"dynamics={spec!r} is no range: give NAME=LOW:HIGH with LOW at most HIGH, e.g. gravity=8:12")


def dynamics_of(c: Config, client: int) -> dict[str, float]:
    """How the environment of a client departs from the nominal one."""
    ranges = [parse_range(spec) for spec in c.dynamics]
    if not ranges:
        return {}
    env = make_env(c.env)
    check_dynamics(env, c.env, ranges)
    env.close()
    return draw_dynamics(ranges, rng.generator(c.seed, client, "world"))


def check_dynamics(env: gymnasium.Env[Any, Any], env_id: str, ranges: Sequence[Range]) -> None:
    """Refuse ranges of what the environment does not have, or that change its sign: no pole has length -1."""
    known = set.union(*_constants(env))
    for name, low, high in ranges:
        if name not in known:
            raise FedQHDError(f"dynamics={name!r} is nothing {env_id} has{nearest(name, known)}")
        nominal = getattr(env.unwrapped, name, 0.0)
        if min(nominal * low, nominal * high) < 0:
            raise FedQHDError(
                f"dynamics='{name}={low:g}:{high:g}' makes no sense: {env_id} has {nominal:g}, and the sign must stay"
            )


def draw_dynamics(ranges: Sequence[Range], generator: np.random.Generator) -> dict[str, float]:
    """One world: each constant uniform in its range."""
    return {name: float(generator.uniform(low, high)) for name, low, high in ranges}


def changed(
    env: gymnasium.Env[Any, Any], env_id: str, dynamics: Mapping[str, float], kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """The environment with other constants."""
    given = {k: v for k, v in dynamics.items() if k in _constants(env)[0]}
    if given:
        wind = {"enable_wind": True} if "wind_power" in given else {}
        try:
            env = make(env_id, **{**kwargs, **given, **wind})
        except AssertionError as error:
            raise FedQHDError(f"dynamics={given} is refused by {env_id}: {error}") from error
    for name in dynamics.keys() - given.keys():
        setattr(env.unwrapped, name, dynamics[name])
    cart: Any = env.unwrapped
    if hasattr(cart, "polemass_length"):  # what CartPole derives from its constants when it is made
        cart.total_mass, cart.polemass_length = cart.masspole + cart.masscart, cart.masspole * cart.length
    return env
