"""Compiled environments: steps that a kernel calls, so that whole episodes need no Python.

Gymnasium's CartPole, MountainCar and Acrobot have a compiled step with the same bits as Gymnasium's, which is used only
where a comparison on this machine confirms it. Episodes begin by Gymnasium's own `reset`. A user's own environment
derives from `CompiledEnv`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, MountainCarEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env
from fedqhd.envs.make import ActionRepeat
from fedqhd.envs.scaling import StateScaler

TRIED = 200
"""Random steps in which a compiled step must agree with Gymnasium's before it is used."""


class NotCompiled(FedQHDError):
    """Says why an environment or an agent cannot be played by a kernel."""


class CompiledEnv(gymnasium.Env[Array, int], ABC):
    """The base class of your own environments whose episodes are played by a kernel.

    It is an environment of Gymnasium like any other. A subclass defines `observation_space`, a box of vectors, the
    discrete `action_space`, `first_state` and `transition`, and may define `observe`.
    """

    state: tuple[float, ...] = ()

    @staticmethod
    @abstractmethod
    def transition(state: Any, action: int) -> Any:
        """Return the next state, the reward and whether the episode terminated, `((x, y, ...), reward, terminated)`.

        The state is a tuple of floats. The function is compiled by numba, so it may use numbers, tuples, `math` and
        constants of its module.
        """

    @abstractmethod
    def first_state(self, generator: np.random.Generator) -> Sequence[float]:
        """Draw the state in which an episode begins."""

    @staticmethod
    def observe(state: Any) -> Any:
        """Return the observation of a state, a tuple of floats; it is compiled, too. By default, it is the state."""
        return state

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = tuple(float(x) for x in self.first_state(self.np_random))
        return self._observation(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        transition, _, _ = _compiled(type(self), len(self.state))
        state, reward, terminated = transition(self.state, int(action))
        self.state = tuple(float(x) for x in state)
        return self._observation(), float(reward), bool(terminated), False, {}

    def _observation(self) -> Array:
        _, observe, _ = _compiled(type(self), len(self.state))
        return np.array(observe(self.state), np.float32)


@cache
def _compiled(cls: type[CompiledEnv], n: int) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """Return the compiled `transition` and `observe` of a class with n state variables, and its step for kernels."""
    try:
        return kernels.step_of(cls.transition, cls.observe, n)
    except kernels.CompilationError as error:
        first = next(line for line in str(error).splitlines()[1:] if line.strip())
        raise FedQHDError(
            f"{cls.__name__}.transition or observe cannot be compiled by numba ({first.strip()}): use numbers, tuples "
            "and math alone"
        ) from error


def _cartpole(env: CartPoleEnv) -> tuple[Any, list[float]]:
    semi_implicit, barto = env.kinematics_integrator != "euler", env._sutton_barto_reward
    return kernels.cartpole, [
        env.gravity, env.total_mass, env.masspole, env.length, env.polemass_length, env.force_mag, env.tau,
        env.theta_threshold_radians, env.x_threshold, semi_implicit, 0.0 if barto else 1.0, -1.0 if barto else 1.0,
    ]  # fmt: skip


def _mountain_car(env: MountainCarEnv) -> tuple[Any, list[float]]:
    return kernels.mountain_car, [
        env.force, env.gravity, env.max_speed, env.min_position, env.max_position, env.goal_position, env.goal_velocity,
    ]  # fmt: skip


def _acrobot(env: AcrobotEnv) -> tuple[Any, list[float]]:
    if env.torque_noise_max > 0:
        raise NotCompiled("Acrobot with torque_noise_max above 0 has no compiled step")
    first, second, third = env.AVAIL_TORQUE
    return kernels.acrobot, [
        env.LINK_MASS_1, env.LINK_MASS_2, env.LINK_LENGTH_1, env.LINK_COM_POS_1, env.LINK_COM_POS_2, env.LINK_MOI,
        env.dt, env.MAX_VEL_1, env.MAX_VEL_2, first, third, env.book_or_nips == "nips", second, 2.0,
    ]  # fmt: skip


def _own(env: CompiledEnv) -> tuple[Any, list[float]]:
    return _compiled(type(env), len(env.state))[2], []


_STEPS: dict[type, Callable[[Any], tuple[Any, list[float]]]] = {
    CartPoleEnv: _cartpole, MountainCarEnv: _mountain_car, AcrobotEnv: _acrobot,
}  # fmt: skip
"""For each environment, a function that returns its compiled step and the constants that it takes."""


class Twin:
    """The compiled twin of an environment, for one client.

    Args:
        env: The environment, as `make_env` returns it.
        scaler: The scaling of its states.

    Raises:
        NotCompiled: If it has no compiled step, or if that step differs from its own on this machine.
    """

    def __init__(self, env: Env, scaler: StateScaler) -> None:
        base: Any = env.unwrapped
        self._base = base
        self._find = _own if isinstance(base, CompiledEnv) else _STEPS.get(type(base))
        self._repeat, self._limit = _wrappers(env)
        if self._find is None:
            raise NotCompiled(f"{type(base).__name__} has no compiled step")
        self._scratch = _scratch(base)
        self._step, constants = self._find(base)
        if not _agrees(base, self._step, tuple(float(c) for c in constants)):
            raise NotCompiled(f"the compiled step of {type(base).__name__} differs from its own on this machine")
        self.n = len(scaler.shift)
        self._scaling = (scaler.shift.astype(np.float64), scaler.scale.astype(np.float64))

    def world(self) -> Any:
        """Return the environment for a kernel, in its present state and with its present constants."""
        state, observation, reward = self._scratch
        state[:] = self._base.state
        constants = np.array(self._find(self._base)[1], np.float64)  # type: ignore[misc]
        return kernels.World(
            self._step.address, constants, state, observation, reward, *self._scaling, self._repeat, self._limit
        )

    def keep(self, world: Any) -> None:
        """Put the environment into the state in which a kernel left `world`, so that an episode can go on later."""
        self._base.state = tuple(world.state.tolist())


def _scratch(base: Any) -> tuple[Array, Array, Array]:
    """Return arrays for a state, an observation and a reward."""
    base.reset(seed=0)
    return np.zeros(len(base.state)), np.zeros(base.observation_space.shape, np.float32), np.zeros(1)


def _wrappers(env: Env) -> tuple[int, int]:
    """Return for how many steps each action is repeated, and after how many steps an episode is truncated."""
    repeat, limit, outer = 1, 2**62, env
    while outer is not outer.unwrapped:
        if isinstance(outer, ActionRepeat):
            repeat = outer.repeat
        elif isinstance(outer, TimeLimit):
            limit = min(limit, outer._max_episode_steps)
        elif not isinstance(outer, OrderEnforcing):
            raise NotCompiled(f"the wrapper {type(outer).__name__} is not compiled")
        outer = outer.env
    return repeat, limit


_agreed: dict[tuple[Any, ...], bool] = {}
"""The results of `_agrees`, because all clients with the same constants have the same step."""


def _agrees(base: Any, step: Any, constants: tuple[float, ...]) -> bool:
    """Return whether a compiled step has the bits of an environment's own over TRIED random steps."""
    key = (type(base), constants)
    if key not in _agreed:
        _agreed[key] = _same_steps(base, step, np.array(constants, np.float64))
    return _agreed[key]


def _same_steps(base: Any, step: Any, constants: Array) -> bool:
    state, observation, reward = _scratch(base)
    generator, terminated = np.random.default_rng(0), True
    for _ in range(TRIED):
        if terminated:
            base.reset(seed=int(generator.integers(2**31)))
            state[:] = base.state
        a = int(generator.integers(base.action_space.n))
        seen, r, terminated, _, _ = base.step(a)
        ended = kernels.step_once(step.address, constants, state, a, observation, reward)
        same = np.array_equal(np.asarray(base.state, np.float64), state) and np.array_equal(seen, observation)
        if not same or ended != terminated or reward[0] != r:
            return False
    return True
