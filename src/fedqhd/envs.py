"""Environments, the public scaling of their states, and the states that all clients share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from fedqhd.interfaces import SPAN, Array, FedQHDError, nearest
from fedqhd.spaces import as_vectors, make

ROLLOUT_STEPS = 5_000
ABSURD = 1e6
"""A declared bound beyond this says nothing about where states are."""
SPREAD = 2.5
"""How far apart two states of random rollouts are put by scaling=auto, in the median: with the default bandwidth of 1.5
about what Acrobot and MountainCar were found to like."""


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


def draw_dynamics(ranges: Sequence[Range], rng: np.random.Generator) -> dict[str, float]:
    """One world: each constant uniform in its range."""
    return {name: float(rng.uniform(low, high)) for name, low, high in ranges}


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


def random_states(env: gymnasium.Env[Array, np.int64], steps: int, rng: np.random.Generator) -> Array:
    """States met by uniformly random actions, (steps, n)."""
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    return states_met(env, steps, rng, lambda s: rng.integers(actions))


def states_met(
    env: gymnasium.Env[Array, np.int64], steps: int, rng: np.random.Generator, act: Callable[[Array], Any]
) -> Array:
    """States that a policy meets, episode after episode, (steps, n)."""
    states = np.empty((steps, *env.observation_space.shape))  # type: ignore[misc]
    done = True
    for i in range(steps):
        if done:
            states[i], _ = env.reset(seed=int(rng.integers(2**31)))
            done = False
        else:
            states[i], _, terminated, truncated, _ = env.step(act(states[i - 1]))
            done = terminated or truncated
    return states


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


def make_anchors(
    source: str,
    m: int,
    file: str,
    env: gymnasium.Env[Array, np.int64],
    scaler: StateScaler,
    rng: np.random.Generator,
    steps: int = ROLLOUT_STEPS,
) -> Array:
    """The first anchor states, scaled, (m, n): from random rollouts, uniform in the box, half of each, or a file."""
    if source == "file":
        return scaler(read_states(file, len(scaler.shift)))
    rollouts = {"rollout": m, "teacher": m, "uniform": 0, "mix": m - m // 2}[source]
    met = random_states(env, max(steps, 2 * m), rng)
    chosen = met[rng.choice(len(met), rollouts, replace=False)]
    uniform = rng.uniform(scaler.low, scaler.high, (m - rollouts, len(scaler.low)))
    return scaler(np.vstack([chosen, uniform]))


def read_states(file: str, n: int) -> Array:
    """Raw states from an .npy file, or the first array of an .npz."""
    if not Path(file).is_file():
        raise FedQHDError(f"anchor_file={file!r} does not exist: give an .npy or .npz file of states")
    try:
        loaded = np.load(file, allow_pickle=False)
        states = loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
        states = np.asarray(states, dtype=np.float64)
    except Exception as error:
        raise FedQHDError(f"anchor_file={file!r} cannot be read as an .npy or .npz file of numbers: {error}") from error
    if states.ndim != 2 or states.shape[1] != n or not len(states):
        raise FedQHDError(f"anchor_file={file!r} holds an array of shape {states.shape}: (m, {n}) is needed")
    if not np.isfinite(states).all():
        row = int(np.argwhere(~np.isfinite(states))[0][0])
        raise FedQHDError(f"anchor_file={file!r} has a value that is not finite in row {row}: give finite states")
    return states
