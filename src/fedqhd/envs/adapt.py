"""Adapters that give any environment vector observations, actions from 0 on or within bounds, and a time limit."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformAction

from fedqhd.core import named
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.protocols import Array
from fedqhd.envs import minatar

log = logging.getLogger(__name__)

Env = gymnasium.Env[Any, Any]
Grid = tuple[int, int, int]
"""The height, the width and the number of channels of a grid."""

LIMIT = 1_000
"""The time limit of environments that have none, because a policy that goes in circles would never finish."""
HARMLESS = ("super().reset(seed=seed)", "share an object")
"""Texts of warnings that do no harm here, because `repeats` compares episodes and states are copied."""


def make(env_id: str, **kwargs: Any) -> Env:
    """Make an environment without any adapters.

    Args:
        env_id: A Gymnasium id, possibly with the module that registers it (`module:id`), or `module:Env`, where Env is
            an environment, its class or a function that makes it.
        kwargs: Arguments of the environment.
    """
    # Gymnasium's passive checker is disabled because it takes as long as a step of CartPole.
    if env_id.count(":") > 1:
        raise FedQHDError(f"env={env_id!r} is not an environment: give an id such as CartPole-v1, or module:Env")
    custom = named.find(env_id, "env") if ":" in env_id else None
    try:
        if custom is None:
            return gymnasium.make(minatar.SPECS.get(env_id, env_id), disable_env_checker=True, **kwargs)
        spec = EnvSpec(env_id, entry_point=env_factory(custom, env_id))
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise FedQHDError(f"env={env_id!r} needs a package that is not installed: {error}") from error
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        # Versions are not compared, because a common "-v0" would make short names similar.
        hint = nearest(env_id, known_ids(), without_version) or ": give an id such as CartPole-v1, or module:Env"
        raise FedQHDError(f"env={env_id!r} is not an environment that Gymnasium knows{hint}") from error
    except (TypeError, AttributeError) as error:
        raise FedQHDError(f"env={env_id!r} cannot be made: {error}") from error


def without_version(env_id: str) -> str:
    """Return a Gymnasium id without its version."""
    return re.sub(r"-v\d+$", "", env_id)


def known_ids() -> list[str]:
    """Return the ids of environments that can be made without a module."""
    return [*gymnasium.registry, *minatar.SPECS]


def full_id(env_id: str) -> str:
    """Return a Gymnasium id with the version that Gymnasium chooses for an id without one, the newest.

    Unknown ids, and those with a module, are returned as they are.
    """
    ids = known_ids()
    if env_id in ids:
        return env_id
    versions = [known for known in ids if without_version(known) == env_id]
    return max(versions, key=lambda known: int(known.rpartition("-v")[2]), default=env_id)


def env_factory(custom: Any, env_id: str) -> Any:
    """Return a function that makes environments: a class or function itself, or one that copies an environment."""
    if not isinstance(custom, gymnasium.Env):
        if callable(custom):
            return custom
        raise FedQHDError(f"env={env_id!r} is a {type(custom).__name__}: give a gymnasium.Env, its class or a function")

    def copied(render_mode: str | None = None, **kwargs: Any) -> Env:
        if custom.spec is not None:
            return gymnasium.make(custom.spec, **({"render_mode": render_mode, **kwargs} if render_mode else kwargs))
        try:
            env = copy.deepcopy(custom)
        except Exception as error:
            raise FedQHDError(
                f"env={env_id!r} is an object that cannot be copied ({error}), and each client needs its own: give a "
                "function that makes one"
            ) from error
        if render_mode:
            env.unwrapped.render_mode = render_mode
        return env

    return copied


class Vectors(FlattenObservation[Any, Any, Any]):
    """Flattens observations to vectors.

    `symbols` (n,) marks the variables that come from one-hot symbols. `grid` is the shape (H, W, C) if observations are
    grids of booleans or whole numbers, so that `state.reshape(grid)` is the grid; otherwise it is None.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.symbols = symbols(env.observation_space)
        self.grid = grid(env.observation_space)


def symbols(space: spaces.Space[Any]) -> Array:
    """Return which variables of flattened observations belong to a one-hot symbol, as booleans (n,)."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.concatenate([symbols(part) for part in parts])
    one_hot = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return np.full(spaces.flatdim(space), one_hot)


def grid(space: spaces.Space[Any]) -> Grid | None:
    """Return the shape (H, W, C) of grids of booleans or of whole numbers of at most 16 bits, None for other spaces."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return None
    height, width, channels = space.shape
    small = space.dtype.kind in "biu" and space.dtype.itemsize <= 2
    return (height, width, channels) if small else None


def as_vectors(env: Env, env_id: str) -> Env:
    """Give an environment vector observations, actions from 0 on and a time limit. Raises FedQHDError if it cannot.

    Continuous actions stay as they are: vectors within finite bounds.
    """
    actions, observations = env.action_space, env.observation_space
    bounded = isinstance(actions, spaces.Box) and len(actions.shape) == 1 and actions.is_bounded()
    if not isinstance(actions, spaces.Discrete) and not bounded:
        raise FedQHDError(
            f"env={env_id!r} has the action space {actions}: a discrete one, or a box of vectors with finite bounds, "
            "is needed"
        )
    if not isinstance(observations, spaces.Box) or len(observations.shape) != 1:
        try:
            env = Vectors(env)
        except NotImplementedError as error:
            raise FedQHDError(
                f"env={env_id!r} has the observation space {observations}, which Gymnasium cannot flatten to vectors: "
                "give a function that wraps the environment so that its observations are vectors"
            ) from error
    if isinstance(actions, spaces.Discrete) and actions.start:
        env = TransformAction(env, lambda a: a + actions.start, spaces.Discrete(actions.n))
    if env.spec is None or env.spec.max_episode_steps is None:
        env = TimeLimit(env, LIMIT)
    return env


def actions_of(env: Env) -> tuple[int, Array | None]:
    """Return the number of discrete actions and None, or the size of a continuous action and its bounds (2, size)."""
    space: Any = env.action_space
    if isinstance(space, spaces.Box):
        return space.shape[0], np.stack([space.low, space.high])
    return int(space.n), None


def grid_of(env: Env) -> Grid | None:
    """Return the shape (H, W, C) of the grid that an adapted environment's states are made from, None without one."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ObservationWrapper):  # the outermost one decides what a state is
            return env.grid if isinstance(env, Vectors) else None
        env = env.env
    return None


def random_action(space: Any, generator: np.random.Generator) -> Any:
    """Return a uniformly random action: a number, or a vector within the bounds of a box."""
    if isinstance(space, spaces.Box):
        return generator.uniform(space.low, space.high).astype(space.dtype)
    return space.start + generator.integers(space.n)


def check_rules(env_id: str) -> None:
    """Raise FedQHDError if an environment that is not part of Gymnasium breaks a rule of Gymnasium."""
    env = make(env_id)
    spec = env.unwrapped.spec
    if spec is not None and str(spec.entry_point).startswith("gymnasium."):
        return
    rule = broken_rule(env)
    if rule:
        if not any(words in rule for words in HARMLESS):
            raise FedQHDError(f"env={env_id!r} breaks a rule of Gymnasium: {rule}")
        log.warning("env=%r breaks a rule of Gymnasium: %s", env_id, rule)
        if not repeats(env):
            raise FedQHDError(f"env={env_id!r} does not repeat an episode from its seed: reset(seed=...) must do so")
    check_reward(env, env_id)
    env.close()


def check_reward(env: Env, env_id: str) -> None:
    """Raise FedQHDError if the first reward is not a single number, which Gymnasium's checker only warns about."""
    env.reset(seed=0)
    env.action_space.seed(0)
    reward: Any = env.step(env.action_space.sample())[1]
    try:
        float(reward)
    except (TypeError, ValueError):
        raise FedQHDError(f"env={env_id!r} returned the reward {reward!r}: rewards must be single numbers") from None


def broken_rule(env: Env) -> str:
    """Return what Gymnasium's checker says about reset and step, or "".

    The checker raises for some broken rules and only warns about others, among many warnings that do not matter.
    """
    failed = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except AssertionError as error:
            failed = str(error) or "an assertion in it fails"
        except Exception as error:
            failed = f"reset or step fails with {error!r}"
    texts = (str(w.message).split("WARN: ")[-1].removesuffix("\x1b[0m") for w in caught)
    return next((text for text in texts if "`reset()` method" in text or "`step()` method" in text), failed)


def repeats(env: Env, steps: int = 50) -> bool:
    """Return whether two episodes with the same seed and actions have the same observations and rewards."""

    def episode() -> list[Any]:
        generator = np.random.default_rng(0)
        record = [env.reset(seed=1)[0]]
        for _ in range(steps):
            state, reward, terminated, truncated, _ = env.step(random_action(env.action_space, generator))
            record += [state, reward]
            if terminated or truncated:
                break
        return copy.deepcopy(record)

    a, b = episode(), episode()
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
