"""What an environment of any origin needs to be played here: vectors to see, numbered actions, an end, rules kept."""

from __future__ import annotations

import copy
import logging
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

log = logging.getLogger(__name__)

Env = gymnasium.Env[Any, Any]

LIMIT = 1_000
"""Steps of an episode in an environment that has no time limit: a policy that goes in circles would never end."""
HARMLESS = ("super().reset(seed=seed)", "share an object")
"""Broken rules that do not matter here: episodes are compared by what they show, and states are copied."""


def make(env_id: str, **kwargs: Any) -> Env:
    """An environment as its author has it: a Gymnasium id, `module:id` as Gymnasium has it, or `module:Env`."""
    # The passive checker costs as much as a step of CartPole.
    own = named.find(env_id, "env") if ":" in env_id else None
    try:
        if own is None:
            return gymnasium.make(env_id, disable_env_checker=True, **kwargs)
        return gymnasium.make(EnvSpec(env_id, entry_point=maker(own, env_id)), disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise FedQHDError(f"env={env_id!r} needs a package that is not installed: {error}") from error
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        hint = nearest(env_id, gymnasium.registry) or ": give an id such as CartPole-v1, or module:Env"
        raise FedQHDError(f"env={env_id!r} is not an environment that Gymnasium knows{hint}") from error
    except (TypeError, AttributeError) as error:
        raise FedQHDError(f"env={env_id!r} cannot be made: {error}") from error


def maker(own: Any, env_id: str) -> Any:
    """A function that makes such environments: a class or function itself; of an object, copies."""
    if not isinstance(own, gymnasium.Env):
        if callable(own):
            return own
        raise FedQHDError(f"env={env_id!r} is a {type(own).__name__}: give a gymnasium.Env, its class or a function")

    def copied(render_mode: str | None = None, **kwargs: Any) -> Env:
        if own.spec is not None:
            return gymnasium.make(own.spec, **({"render_mode": render_mode, **kwargs} if render_mode else kwargs))
        try:
            env = copy.deepcopy(own)
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
    """Any observations as vectors; `symbols` are those variables of them that are 1 for one value of a symbol."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.symbols = symbols(env.observation_space)


def symbols(space: spaces.Space[Any]) -> Array:
    """Which variables of flattened observations belong to a one-hot symbol, where no value is nearer than another."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.concatenate([symbols(part) for part in parts])
    one_hot = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return np.full(spaces.flatdim(space), one_hot)


def as_vectors(env: Env, env_id: str) -> Env:
    """The environment with vector observations and actions from 0 on, or one sentence on why it has none."""
    actions, seen = env.action_space, env.observation_space
    if not isinstance(actions, spaces.Discrete):
        raise FedQHDError(f"env={env_id!r} has actions {actions}: Q-learning here needs discrete ones")
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        try:
            env = Vectors(env)
        except NotImplementedError as error:
            raise FedQHDError(
                f"env={env_id!r} has observations {seen}, which are no vector, nor can Gymnasium make one of them: "
                "give a function whose wrapper does"
            ) from error
    if actions.start:
        env = TransformAction(env, lambda a: a + actions.start, spaces.Discrete(actions.n))
    if env.spec is None or env.spec.max_episode_steps is None:
        env = TimeLimit(env, LIMIT)
    return env


def check_rules(env_id: str) -> None:
    """Refuse an environment that breaks a rule of Gymnasium, naming it. Gymnasium's own are known to keep them."""
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
    env.close()


def broken_rule(env: Env) -> str:
    """What Gymnasium's checker says of reset and step, or ''. It warns of some of what it finds, and of much else."""
    failed = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True, skip_close_check=True)
        except AssertionError as error:
            failed = str(error) or "an assertion of its own fails"
        except Exception as error:
            failed = f"reset or step fails with {error!r}"
    texts = (str(w.message).split("WARN: ")[-1].removesuffix("\x1b[0m") for w in caught)
    return next((text for text in texts if "`reset()` method" in text or "`step()` method" in text), failed)


def repeats(env: Env, steps: int = 50) -> bool:
    """Whether two episodes with one seed and the same actions show the same."""

    def shown() -> list[Any]:
        actions = np.random.default_rng(0).integers(env.action_space.n, size=steps)  # type: ignore[attr-defined]
        seen = [env.reset(seed=1)[0]]
        for action in actions:
            state, reward, terminated, truncated, _ = env.step(action)
            seen += [state, reward]
            if terminated or truncated:
                break
        return copy.deepcopy(seen)

    a, b = shown(), shown()
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
