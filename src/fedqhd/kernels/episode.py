"""Whole episodes in one kernel: acting, stepping the environment, and learning.

An agent is passed as one of the records of `fedqhd.kernels.records`; `players` says how it acts and learns. The loop
calls the same kernels in the same order as the loop in Python, so that both give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedqhd.kernels.cache import exact
from fedqhd.kernels.calls import call_step
from fedqhd.kernels.memory import copy_to
from fedqhd.kernels.players import choose, has_room, learn

MANY = 512
"""The largest number of actions in one call of `play`, so that Python can soon answer an interrupt."""
PLAYING, ENDED, BAD_ACTION, BAD_REWARD, BAD_STEP = range(5)
"""How `play` returned: the episode goes on, or it ended, or Q, a reward or a TD error was not finite."""
NEVER = 2**62
"""A length that no episode reaches."""


class World(NamedTuple):
    """An environment for `play`, with scratch space for one step."""

    address: int
    """The address of its step; see `fedqhd.kernels.calls.STEP`."""
    constants: Any
    state: Any
    observation: Any
    reward: Any
    """The reward of the last step, (1,)."""
    shift: Any
    scale: Any
    repeat: int
    """Steps for which each action is repeated."""
    limit: int
    """Steps after which an episode is truncated."""


@exact
def scale_state(observation, shift, scale, z):
    """Write the scaled state (observation - shift) / scale to z."""
    for j in range(z.shape[0]):
        z[j] = np.float32((np.float64(observation[j]) - shift[j]) / scale[j])


@exact
def advance(world, action, left, z):
    """Repeat an action, at most `left` times, and write the scaled state to z.

    Returns the sum of the rewards, whether the episode terminated, and the number of steps.
    """
    total, steps, terminated = 0.0, 0, False
    while not terminated and steps < world.repeat and steps < left:
        terminated = call_step(world.address, world.constants, world.state, action, world.observation, world.reward)
        total += world.reward[0]
        steps += 1
    scale_state(world.observation, world.shift, world.scale, z)
    return total, terminated, steps


@exact
def step_once(address, constants, state, action, observation, reward):
    """Take one step of a compiled environment and return whether the episode terminated."""
    return call_step(address, constants, state, action, observation, reward)


@exact
def play(world, agent, epsilon, gamma, z, z_next, visited, taken, many, until, elapsed, total):
    """Play at most `many` actions of an episode and learn from each of them.

    Args:
        world: The environment, a `World`.
        agent: The agent, one of the records of `fedqhd.kernels.records`.
        epsilon: The exploration rate.
        gamma: The discount factor.
        z: The scaled state, which is replaced by the last one.
        z_next: Scratch space for the next state.
        visited: Room for the states in which actions were taken, (many, n), or (0, n) if nobody asks for them.
        taken: Room for the actions, (many,), or (0,) if nobody asks for them.
        many: The largest number of actions.
        until: The length, in steps of the environment, at which the episode is interrupted before the next action.
        elapsed: How many steps of the environment the episode has had.
        total: The sum of its rewards so far.

    Returns:
        How it returned, the number of actions, `elapsed` and `total` at the end, and the last action, its reward and
        its TD error.
    """
    a, r, delta = 0, 0.0, 0.0
    for t in range(many):
        if elapsed >= until or not has_room(agent):
            return PLAYING, t, elapsed, total, a, r, delta
        a = choose(agent, z, epsilon)
        if a < 0:
            return BAD_ACTION, t, elapsed, total, a, r, delta
        r, terminated, steps = advance(world, a, world.limit - elapsed, z_next)
        if not np.isfinite(r):
            return BAD_REWARD, t, elapsed, total, a, r, delta
        delta = learn(agent, z, a, r, 0.0 if terminated else gamma, z_next)
        if not np.isfinite(delta):
            return BAD_STEP, t + 1, elapsed, total, a, r, delta
        if visited.shape[0]:
            copy_to(z, visited[t])
        if taken.shape[0]:
            taken[t] = a
        total += r
        elapsed += steps
        copy_to(z_next, z)
        if terminated or elapsed >= world.limit:
            return ENDED, t + 1, elapsed, total, a, r, delta
    return PLAYING, many, elapsed, total, a, r, delta
