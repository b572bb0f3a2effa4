"""The two loops that play a training episode, in Python and in a kernel. Both give the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from fedqhd import kernels
from fedqhd.agents.ongoing import Ongoing
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Transition
from fedqhd.envs.adapt import Env
from fedqhd.envs.compiled import NotCompiled, Twin
from fedqhd.envs.make import repeat_of
from fedqhd.envs.scaling import StateScaler

SPLIT = ("environment", "acting", "learning", "federation", "episodes")
"""The activities into which the time of a client is split. `episodes` are those that a kernel played, in which the
environment, acting and learning cannot be told apart."""

Visit = Callable[[Array], None]
"""Called with each scaled state in which an action was taken."""


Played = tuple[bool, dict[str, float]]
"""Whether an episode ended, and the time spent by activity."""


def check_reward(r: float, length: int) -> None:
    """Raise FedQHDError unless a reward is finite."""
    if not math.isfinite(r):
        raise FedQHDError(f"step {length} of the environment returned the reward {r}: it must be finite")


def check_count(steps: int, repeat: int) -> None:
    """Raise FedQHDError unless an environment counts as many steps for an action as a round of steps can rely on."""
    if not 1 <= steps <= repeat:
        raise FedQHDError(
            f"the environment counts {steps} steps for one action (env_steps), but in rounds of steps it must be "
            f"{'1' if repeat == 1 else f'1 to {repeat}'}: give episodes and round_episodes instead"
        )


def play_in_python(
    agent: Agent,
    env: Env,
    episode: Ongoing,
    scaler: StateScaler,
    gamma: float,
    visit: Visit | None,
    until: int | None = None,
) -> Played:
    """Play an episode that has begun, one step after the other, to its end or until it has had a number of steps.

    Args:
        agent: The agent that acts and learns.
        env: The environment.
        episode: The episode, which is brought up to date.
        scaler: The scaling of states.
        gamma: The discount factor.
        visit: Called with each state in which an action was taken.
        until: The length at which to interrupt the episode, whose actions are then kept; None plays to its end.
    """
    environment = acting = learning = 0.0
    repeat = repeat_of(env)
    total, length, done, s = episode.ret, episode.length, False, episode.s
    while not done and (until is None or length < until):
        start = perf_counter()
        a = agent.act(s)
        acted = perf_counter()
        state, reward, terminated, truncated, info = env.step(a)
        r = float(reward)
        s_next = scaler(state)
        stepped = perf_counter()
        check_reward(r, length)
        # After termination there are no more rewards; truncation only cuts the episode off, so it bootstraps.
        agent.observe(Transition(s, a, r, 0.0 if terminated else gamma, s_next))
        if visit:
            visit(s)
        learned = perf_counter()
        acting += acted - start
        environment += stepped - acted
        learning += learned - stepped
        total += r
        # An environment of the user may count in numbers of numpy, which files cannot hold.
        steps = int(info.get("env_steps", 1))
        if until is not None:
            check_count(steps, repeat)
            # An agent may use the memory of a vector again.
            episode.actions.append(a if isinstance(a, int) else np.copy(a))
        length += steps
        done = terminated or truncated
        s = s_next
    episode.s, episode.ret, episode.length = s, total, length
    return done, {"environment": environment, "acting": acting, "learning": learning}


def play_in_kernel(
    agent: Any, twin: Twin, episode: Ongoing, gamma: float, visit: Visit | None, until: int | None = None
) -> Played:
    """Play an episode in a kernel, at most `kernels.MANY` actions at a time; the arguments are those of the other loop.

    The environment of `twin` is in the state of the episode, and it is again if the episode is interrupted.
    """
    start = perf_counter()
    world, z = twin.world(), episode.s
    agent.goes_on(z)
    z_next = np.empty_like(z)
    visited = np.empty((kernels.MANY if visit else 0, len(z)), np.float32)
    taken = np.empty(0 if until is None else kernels.MANY, np.int64)
    stop = kernels.NEVER if until is None else until
    status, length, total = kernels.PLAYING, episode.length, episode.ret
    while status == kernels.PLAYING and length < stop:
        record = agent.in_kernel()
        status, actions, length, total, a, r, delta = kernels.play(
            world, record, agent.epsilon, gamma, z, z_next, visited, taken, kernels.MANY, stop, length, total
        )
        episode.actions += taken[:actions].tolist()
        agent.played(record, actions, z)
        if visit:
            for s in visited[:actions]:
                visit(s)
        if status == kernels.BAD_REWARD:
            check_reward(r, length)
        elif status in (kernels.BAD_ACTION, kernels.BAD_STEP):
            agent.failed(status == kernels.BAD_ACTION, z, a, r, delta)
    episode.ret, episode.length = total, length
    if status == kernels.PLAYING:
        twin.keep(world)
    return status == kernels.ENDED, {"episodes": perf_counter() - start}


def greedy_in_kernel(model: Any, twin: Twin, z: Array, longest: float = math.inf) -> tuple[float, int]:
    """Play a greedy episode from the scaled state z in a kernel, and stop after `longest` steps at the latest.

    Returns:
        Its return and its length in steps.
    """
    world, record = twin.world(), model.in_kernel()
    z_next, nowhere, untaken = np.empty_like(z), np.empty((0, len(z)), np.float32), np.empty(0, np.int64)
    status, length, total, r = kernels.PLAYING, 0, 0.0, 0.0
    while status == kernels.PLAYING and length < longest:
        many = int(min(kernels.MANY, longest - length))
        status, _, length, total, _, r, _ = kernels.play(
            world, record, 0.0, 0.0, z, z_next, nowhere, untaken, many, kernels.NEVER, length, total
        )
    check_reward(r, length)
    return total, length


def warm_up(agent: Any, twin: Twin, gamma: float) -> None:
    """Compile the kernel for `play_in_kernel`, or load it from its cache, by playing no action."""
    z = np.zeros(twin.n, np.float32)
    nowhere, untaken = np.empty((0, twin.n), np.float32), np.empty(0, np.int64)
    kernels.play(
        twin.world(), agent.in_kernel(), agent.epsilon, gamma, z, z.copy(), nowhere, untaken, 0, kernels.NEVER, 0, 0.0
    )


def plays_in_kernel(player: Any) -> bool:
    """Return whether a kernel can play an agent or a model.

    It must have a record for it, and the methods of the class that defines the record: a subclass that acts or learns
    in another way is played in Python.
    """
    record = getattr(player, "in_kernel", lambda: None)()
    methods = [name for name in ("act", "observe", "q") if hasattr(player, name)]
    if record is None or set(methods) & vars(player).keys():
        return False
    home = {name: next(c for c in type(player).__mro__ if name in vars(c)) for name in ("in_kernel", *methods)}
    return all(issubclass(home["in_kernel"], home[name]) for name in methods)


def twin_for(player: Any, env: Env, scaler: StateScaler, loop: str = "auto") -> Twin | None:
    """Return the compiled environment in which a kernel can play an agent or a model, or None to play in Python.

    Args:
        player: The agent or the model.
        env: The environment.
        scaler: The scaling of states.
        loop: "python" or "compiled" for where to play; "auto" prefers a kernel.

    Raises:
        NotCompiled: If loop is "compiled" and no kernel can play.
    """
    if loop == "python":
        return None
    try:
        twin = Twin(env, scaler)
        if not plays_in_kernel(player):
            raise NotCompiled(f"no kernel plays {type(player).__name__} with these settings")
    except NotCompiled as reason:
        if loop == "compiled":
            raise NotCompiled(f"loop=compiled is not possible: {reason}; leave it out or give loop=python") from None
        return None
    return twin
