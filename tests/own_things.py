"""Environments, encoders and rules as a user would bring them: plain modules that know nothing of FedQHD."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.wrappers import TimeLimit

from worlds import Corridor


def several_actions(**kwargs):
    """Two choices in every step."""
    env = Corridor(**kwargs)
    env.action_space = MultiDiscrete([2, 3])
    return env


def endless_actions(**kwargs):
    """Any number is an action."""
    env = Corridor(**kwargs)
    env.action_space = Box(-np.inf, np.inf, (1,), np.float32)
    return env


def grid(**kwargs):
    """A room of MiniGrid's: a small picture with no text."""
    from minigrid.envs import EmptyEnv
    from minigrid.wrappers import ImgObsWrapper

    return TimeLimit(ImgObsWrapper(EmptyEnv(size=5, **kwargs)), 50)


def highway(**kwargs):
    """A road of highway-env's with little traffic, since its steps are slow."""
    from highway_env.envs import HighwayEnvFast

    return HighwayEnvFast(config={"vehicles_count": 3, "simulation_frequency": 5, "duration": 10}, **kwargs)


def short_corridor(render_mode=None):
    return TimeLimit(Corridor(), 20)


class Rich(Corridor):
    """What Corridor shows, in parts of several kinds; actions are called 3 and 4."""

    observation_space = Dict(
        {
            "where": Box(-1.0, 1.0, (1, 1), np.float64),
            "side": Discrete(2),
            "both": Tuple((Discrete(3), Box(0, 1, (2,)))),
        }
    )
    action_space = Discrete(2, start=3)

    def seen(self, x):
        return {"where": x.reshape(1, 1), "side": int(x[0] > 0), "both": (1, np.full(2, 0.5, np.float32))}

    def reset(self, **kwargs):
        x, info = super().reset(**kwargs)
        return self.seen(x), info

    def step(self, action):
        assert action in (3, 4)
        x, *rest = super().step(action - 3)
        return self.seen(x), *rest


class Breaks(Corridor):
    """A Corridor with one rule broken."""

    def __init__(self, rule="", render_mode=None):
        self.rule, self.steps = rule, 0

    def reset(self, **kwargs):
        x, info = super().reset(**kwargs)
        self.steps = 0
        return {"no info": x, "outside": (x + 5, info)}.get(self.rule, (x, info))

    def step(self, action):
        x, r, terminated, truncated, info = super().step(action)
        self.steps += 1
        broken = {
            "four": (x, r, terminated, info),
            "nan": (x * np.nan, r, terminated, truncated, info),
            "shape": (np.zeros(3), r, terminated, truncated, info),
            "chance": (x + np.random.default_rng().uniform(0, 0.01), r, terminated, truncated, info),
            "late nan": (x * (np.nan if self.steps > 3 else 1), r, terminated, truncated, info),
        }
        return broken.get(self.rule, (x, r, terminated, truncated, info))


class SeedsItself(Corridor):
    """Repeats episodes from their seeds, but with another generator than Gymnasium's."""

    def reset(self, *, seed=None, options=None):
        self.x = np.random.default_rng(seed).uniform(-0.9, 0.5)
        return np.array([self.x]), {}


def no_info():
    return Breaks("no info")


def outside():
    return Breaks("outside")


def four():
    return Breaks("four")


def nan():
    return Breaks("nan")


def shape():
    return Breaks("shape")


def chance():
    return Breaks("chance")


class NoSeed(Corridor):
    """Draws where nobody can seed it."""

    def reset(self, *, seed=None, options=None):
        self.x = np.random.default_rng().uniform(-0.9, 0.5)
        return np.array([self.x]), {}


one_object = gymnasium.make("MountainCar-v0")
not_an_env = 7


# Encoders: maps, and what makes them.

FREQUENCIES = np.random.default_rng(3).normal(0, 0.5, (4, 60))


def waves(s):
    """The map itself, for four variables."""
    return np.cos(s @ FREQUENCIES) / np.sqrt(60)


def complex_waves(s):
    return np.exp(1j * (s @ FREQUENCIES)) / np.sqrt(60)


def tiles(n, D, rng):
    """A tile coding: each of D/8 tilings of each variable, one of its 8 tiles."""
    offsets = rng.uniform(0, 1, (D // 8, n))

    def phi(s):
        bins = np.clip(np.floor(s[:, None, :] + offsets + 4), 0, 7).astype(int)
        which = bins.sum(axis=2) % 8
        return np.eye(8)[which].reshape(len(s), -1) / np.sqrt(D // 8)

    return phi


class Waves:
    """A class that is drawn for each client."""

    def __init__(self, n, D, sigma, rng):
        self.omega, self.b = rng.normal(0, 1 / sigma, (n, D)), rng.uniform(0, 2 * np.pi, D)

    def __call__(self, s):
        return np.cos(s @ self.omega + self.b) / np.sqrt(len(self.b))


def too_long(s):
    return np.exp(0.1 * s)


def with_nan(s):
    return np.where(s > 3.5, np.nan, 0.1)


def one_row(s):
    return np.full(7, 0.1)


def words(s):
    return np.full((len(s), 3), "a")


def moody(s):
    return np.random.default_rng().uniform(0, 0.1, (len(s), 5))


def among_others(s):
    return (s - s.mean(axis=0)) / 100 / (1 + np.abs(s))


def fails(n, D):
    raise ZeroDivisionError("no such thing")


def plain_mean(P):
    """A rule of aggregation."""
    return P.mean(axis=0)


class Screen(Corridor):
    """A Corridor that shows a picture of the size of Atari's, and remembers that it was played."""

    observation_space = Box(0, 255, (210, 160, 3), np.uint8)
    played = False

    def reset(self, **kwargs):
        type(self).played = True
        return np.zeros((210, 160, 3), np.uint8), super().reset(**kwargs)[1]


class TwoRewards(Corridor):
    """A reward for each of two goals."""

    def step(self, action):
        x, r, *rest = super().step(action)
        return x, np.array([r, -r]), *rest


def failing_rule(P):
    raise ZeroDivisionError("nobody is left")
