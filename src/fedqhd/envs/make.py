"""Environments with vector observations, and changes to their dynamics."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.protocols import Array
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.envs.adapt import LIMIT, Env, Grid, actions_of, as_vectors, grid_of, make


@dataclass(frozen=True)
class EnvironmentSettings(Settings):
    """The settings of each client's environment."""

    title: ClassVar[str] = "environment"

    action_repeat: int = setting(1, "steps of the environment for which each action is repeated")
    dynamics: tuple[str, ...] = setting(
        (), "constants that differ between clients: NAME=LOW:HIGH, drawn for each, e.g. length=0.3:1"
    )
    gamma: float = setting(0.99, "discount from one action to the next", at_least=0, at_most=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        for spec in c.dynamics:
            parse_range(spec)


def make_env(env_id: str, *, repeat: int = 1, dynamics: Mapping[str, float] | None = None, **kwargs: Any) -> Env:
    """Make an environment with vector observations.

    Observations that are not vectors are flattened, symbols to one-hot vectors.

    Args:
        env_id: A Gymnasium id, or `module:Env`, a class or a function that makes an environment.
        repeat: Steps for which each action is repeated.
        dynamics: New values for constants of its physics. These are arguments of its constructor (gravity and wind of
            LunarLander, `sticky_action_prob` of MinAtar) or its attributes (`length` of CartPole, `LINK_MASS_1` of
            Acrobot, `force` of MountainCar).
        kwargs: Other arguments of the environment.

    Raises:
        FedQHDError: If there is no such environment, or if it cannot be adapted.
    """
    env = make(env_id, **kwargs)
    if dynamics:
        env = with_dynamics(env, env_id, dynamics, kwargs)
    env = as_vectors(env, env_id)
    return ActionRepeat(env, repeat) if repeat > 1 else env


class Spaces(NamedTuple):
    """The sizes of an environment's states and actions."""

    n: int
    """Number of state variables."""
    actions: int
    """Number of actions, or of the numbers that a continuous action consists of."""
    bounds: Array | None
    """The lowest and the highest continuous action, (2, actions); None if actions are discrete."""
    grid: Grid | None
    """The shape (H, W, C) of the grid that a state is made from; None if observations are no grids."""


def spaces_of(env_id: str) -> Spaces:
    """Return the sizes of an environment's states and actions without playing it."""
    env = make_env(env_id)
    found = Spaces(env.observation_space.shape[0], *actions_of(env), grid_of(env))  # type: ignore[index]
    env.close()
    return found


def step_limit(env_id: str) -> int:
    """Return the largest number of steps of an episode; every environment has a time limit here."""
    env = make_env(env_id)
    limit = env.spec.max_episode_steps if env.spec is not None else None
    env.close()
    return LIMIT if limit is None else limit


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action for `repeat` steps and sums their rewards; `info["env_steps"]` is the number of steps taken.

    It helps where a single step has so little effect that the values of actions differ by less than their estimation
    error.
    """

    def __init__(self, env: Env, repeat: int) -> None:
        super().__init__(env)
        self.repeat = repeat

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for step in range(1, self.repeat + 1):  # noqa: B007
            state, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return state, total, terminated, truncated, {**info, "env_steps": step}


def repeat_of(env: Env) -> int:
    """Return for how many steps an environment, as `make_env` returns it, repeats each action."""
    return env.repeat if isinstance(env, ActionRepeat) else 1


Range = tuple[str, float, float]


def _constants(env: Env) -> tuple[set[str], set[str]]:
    """Return the names that can be changed: arguments of the constructor, and numeric attributes."""
    arguments = set(inspect.signature(type(env.unwrapped).__init__).parameters) - {"self", "render_mode"}
    return arguments, {k for k in dir(env.unwrapped) if isinstance(getattr(env.unwrapped, k, None), float | int)}


def parse_range(spec: str) -> Range:
    """Parse `name=low:high` to (name, low, high)."""
    name, _, bounds = spec.partition("=")
    low, _, high = bounds.partition(":")
    try:
        parsed = name, float(low), float(high)
        if name and math.isfinite(parsed[1]) and math.isfinite(parsed[2]) and parsed[1] <= parsed[2]:
            return parsed
    except ValueError:
        pass
    raise FedQHDError(f"dynamics={spec!r} is not a range: give NAME=LOW:HIGH with LOW at most HIGH, e.g. gravity=8:12")


def dynamics_of(c: Config, client: int) -> dict[str, float]:
    """Draw the constants of a client's environment that differ from the nominal ones."""
    ranges = [parse_range(spec) for spec in c.dynamics]
    if not ranges:
        return {}
    env = make_env(c.env)
    check_dynamics(env, c.env, ranges)
    env.close()
    return draw_dynamics(ranges, rng.generator(c.seed, client, "world"))


def check_dynamics(env: Env, env_id: str, ranges: Sequence[Range]) -> None:
    """Raise FedQHDError for ranges of constants that the environment does not have, or that change their sign."""
    known = set.union(*_constants(env))
    for name, low, high in ranges:
        if name not in known:
            raise FedQHDError(f"dynamics={name!r} is not a constant of {env_id}{nearest(name, known)}")
        nominal = getattr(env.unwrapped, name, 0.0)
        if min(nominal * low, nominal * high) < 0:
            raise FedQHDError(
                f"dynamics='{name}={low:g}:{high:g}' changes the sign of {nominal:g} in {env_id}: the sign must stay"
            )


def draw_dynamics(ranges: Sequence[Range], generator: np.random.Generator) -> dict[str, float]:
    """Draw each constant uniformly from its range."""
    return {name: float(generator.uniform(low, high)) for name, low, high in ranges}


def with_dynamics(env: Env, env_id: str, dynamics: Mapping[str, float], kwargs: Mapping[str, Any]) -> Env:
    """Return the environment with other constants; arguments of the constructor require making it again."""
    arguments = {k: v for k, v in dynamics.items() if k in _constants(env)[0]}
    if arguments:
        wind = {"enable_wind": True} if "wind_power" in arguments else {}
        try:
            env = make(env_id, **{**kwargs, **arguments, **wind})
        except (AssertionError, ValueError) as error:
            raise FedQHDError(f"dynamics={arguments} is refused by {env_id}: {error}") from error
    for name in dynamics.keys() - arguments.keys():
        setattr(env.unwrapped, name, dynamics[name])
    cart: Any = env.unwrapped
    if hasattr(cart, "polemass_length"):  # CartPole derives these from its constants in its constructor
        cart.total_mass, cart.polemass_length = cart.masspole + cart.masscart, cart.masspole * cart.length
    return env
