"""Compiled environments have the bits of Gymnasium's, and are used only where they do."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RescaleObservation, TimeLimit

from fedqhd import kernels
from fedqhd.core.errors import FedQHDError
from fedqhd.envs import compiled
from fedqhd.envs.compiled import CompiledEnv, NotCompiled, Twin
from fedqhd.envs.make import make_env, with_dynamics
from fedqhd.envs.quick import quick
from fedqhd.envs.scaling import StateScaler

CLASSIC = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1")
DYNAMICS = {
    "CartPole-v1": {"gravity": (5, 15), "masspole": (0.05, 0.5), "length": (0.2, 1.5), "force_mag": (5, 15)},
    "MountainCar-v0": {"gravity": (0.002, 0.003), "force": (0.0005, 0.002), "goal_velocity": (0, 0.01)},
    "Acrobot-v1": {"LINK_MASS_1": (0.5, 2), "LINK_MASS_2": (0.5, 2), "LINK_LENGTH_1": (0.5, 2),
                   "LINK_COM_POS_1": (0.2, 0.8), "LINK_COM_POS_2": (0.2, 0.8), "LINK_MOI": (0.5, 2)},
}  # fmt: skip


class Hill(CompiledEnv):
    """MountainCar once more, as a user would write it."""

    observation_space = Box(-1.3, 0.7, (2,))
    action_space = Discrete(3)

    def first_state(self, generator):
        return generator.uniform(-0.6, -0.4), 0

    @staticmethod
    def transition(state, action):
        position, velocity = state
        velocity = min(max(velocity + (action - 1) * 0.001 + math.cos(3 * position) * (-0.0025), -0.07), 0.07)
        position = min(max(position + velocity, -1.2), 0.6)
        if position == -1.2 and velocity < 0:
            velocity = 0
        return (position, velocity), -1.0, position >= 0.5


class Uncompilable(Hill):
    @staticmethod
    def transition(state, action):
        return {"position": state}, -1.0, False


def scaler_of(env):
    n = env.observation_space.shape[0]
    return StateScaler(*(np.full(n, value) for value in (0.25, 2.0, -50.0, 50.0)))


def compare(env, steps, seed=0):
    """Play random actions with the environment and its twin; every number must be the same at every step."""
    generator, world, done, ends = np.random.default_rng(seed), None, True, 0
    twin, base = Twin(env, scaler_of(env)), env.unwrapped
    for _ in range(steps):
        if done:
            env.reset(seed=int(generator.integers(2**31)))
            world, length, ends = twin.world(), 0, ends + 1
        a = int(generator.integers(env.action_space.n))
        seen, reward, terminated, truncated, _ = env.step(a)
        ended = kernels.step_once(world.address, world.constants, world.state, a, world.observation, world.reward)
        length += 1
        assert np.array_equal(np.asarray(base.state, np.float64), world.state)
        assert np.array_equal(seen, world.observation)
        assert (reward, terminated) == (world.reward[0], ended)
        assert truncated == (length >= world.limit)
        done = terminated or truncated
    return ends


@pytest.mark.parametrize("env_id", CLASSIC)
def test_a_compiled_step_has_the_bits_of_gymnasium(env_id):
    assert compare(make_env(env_id), 20_000) > 10


@pytest.mark.slow
@pytest.mark.parametrize("env_id", CLASSIC)
def test_a_compiled_step_has_the_bits_of_gymnasium_for_a_million_steps(env_id):
    assert compare(make_env(env_id), 1_000_000, seed=1) > 1000


@pytest.mark.parametrize("env_id", CLASSIC)
@pytest.mark.parametrize("seed", range(5))
def test_a_compiled_step_follows_the_dynamics_of_its_environment(env_id, seed):
    generator = np.random.default_rng(seed)
    dynamics = {name: float(generator.uniform(*bounds)) for name, bounds in DYNAMICS[env_id].items()}
    assert compare(make_env(env_id, dynamics=dynamics), 3000, seed) > 3


def test_variants_of_the_environments():
    compare(make_env("CartPole-v1", sutton_barto_reward=True), 3000)
    integrated = make_env("CartPole-v1")
    integrated.unwrapped.kinematics_integrator = "semi-implicit euler"
    compare(integrated, 3000)
    nips = make_env("Acrobot-v1")
    nips.unwrapped.book_or_nips, nips.unwrapped.AVAIL_TORQUE = "nips", [-0.5, 0.25, 2.0]
    compare(nips, 3000)


def test_dynamics_change_the_steps():
    """A negative control: the comparison would notice other constants."""
    env = make_env("CartPole-v1")
    twin = Twin(env, scaler_of(env))
    env.reset(seed=0)
    before = twin.world().constants
    with_dynamics(env, "CartPole-v1", {"length": 0.7}, {})
    assert not np.array_equal(before, twin.world().constants)


def test_a_step_that_differs_is_not_used(monkeypatch):
    """As on a machine whose numpy rounds its cosines in another way than its C library."""
    monkeypatch.setattr(compiled, "_agreed", {})
    monkeypatch.setattr(CartPoleEnv, "step", lambda self, a, step=CartPoleEnv.step: _nudged(self, step(self, a)))
    env = make_env("CartPole-v1")
    with pytest.raises(NotCompiled, match="the compiled step of CartPoleEnv differs from its own on this machine"):
        Twin(env, scaler_of(env))


def _nudged(env, result):
    env.state = np.nextafter(env.state, np.inf)
    return result


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (make_env("LunarLander-v3"), "LunarLander has no compiled step"),
        (RescaleObservation(make_env("MountainCar-v0"), np.float32(-1), np.float32(1)), "wrapper RescaleObservation"),
        (make_env("Acrobot-v1", dynamics={"torque_noise_max": 0.5}), "torque_noise_max above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_says_why(env, reason):
    with pytest.raises(NotCompiled, match=reason):
        Twin(env, scaler_of(env))


def test_subclasses_are_not_taken_for_the_class():
    class Windy(CartPoleEnv):
        def step(self, action):
            return super().step(1 - action)

    env = TimeLimit(Windy(), 10)
    with pytest.raises(NotCompiled, match="Windy has no compiled step"):
        Twin(env, scaler_of(env))


def test_time_limits_and_repeated_actions_are_those_of_the_wrappers():
    env = make_env("MountainCar-v0", repeat=3)
    env.reset(seed=0)
    world = Twin(env, scaler_of(env)).world()
    assert (world.repeat, world.limit) == (3, 200)


def test_a_users_own_environment_is_one_of_gymnasium():
    check_env(Hill())
    compare(TimeLimit(Hill(), 200), 3000)


def test_a_users_own_environment_equals_the_one_that_it_copies():
    """Its first state is drawn as MountainCar draws it, and its steps are the same up to the last bits."""
    own, theirs, generator = Hill(), gymnasium.make("MountainCar-v0"), np.random.default_rng(0)
    assert np.array_equal(own.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for _ in range(150):
        a = int(generator.integers(3))
        assert np.allclose(own.step(a)[0], theirs.step(a)[0], atol=1e-6)


def test_an_environment_that_numba_cannot_compile_says_so():
    with pytest.raises(FedQHDError, match=r"Uncompilable\.transition or observe cannot be compiled by numba"):
        Uncompilable().reset(seed=0)


def played(env, steps):
    """Return what a random player sees of an environment."""
    generator, done, seen = np.random.default_rng(0), True, []
    for _ in range(steps):
        if done:
            seen.append(env.reset(seed=int(generator.integers(2**31))))
        state, reward, terminated, truncated, _ = env.step(int(generator.integers(env.action_space.n)))
        seen.append((state, reward, terminated, truncated))
        done = terminated or truncated
    return seen


@pytest.mark.parametrize(("env_id", "repeat"), [("CartPole-v1", 1), ("MountainCar-v0", 3), ("Acrobot-v1", 2)])
def test_a_quick_environment_has_the_same_episodes_without_taking_a_step_of_its_own(env_id, repeat, monkeypatch):
    env = make_env(env_id, repeat=repeat)
    expected = played(env, 3000)
    fast = quick(make_env(env_id, repeat=repeat))
    monkeypatch.setattr(type(env.unwrapped), "step", None)
    for ours, theirs in zip(played(fast, 3000), expected, strict=True):
        np.testing.assert_equal(ours, theirs)
        assert not hasattr(ours[0], "dtype") or ours[0].dtype == theirs[0].dtype


def test_an_environment_without_a_compiled_step_stays_as_it_is():
    env = make_env("LunarLander-v3")
    assert quick(env) is env
