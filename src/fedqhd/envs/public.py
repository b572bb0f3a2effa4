"""What all clients of a run share in public: scaling, anchors, and states to measure features on or fit encoders to."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import gymnasium
import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import check_rules
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import StateScaler, make_scaler

PUBLIC_STATES = 500
FIT_STATES = 2000


class Public(NamedTuple):
    """What all clients share: everyone can make it from the settings and a seed, so none of it travels."""

    scaler: StateScaler
    anchors: Array | None
    """None where the method has none, or where clients give them."""
    measure: Array
    """States of random rollouts, scaled: on these a client measures its own features."""
    fit: Array
    """On these it may fit an encoder."""
    actions: int

    @property
    def n(self) -> int:
        """Number of state variables."""
        return len(self.scaler.shift)

    def fingerprint(self) -> str:
        """Equal where Q on the anchors means the same; with how many state variables, anchors and actions."""
        anchors = np.zeros((0, self.n), np.float32) if self.anchors is None else self.anchors
        digest = hashlib.sha256()
        for part in (*self.scaler, anchors):
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"{digest.hexdigest()[:16]} ({self.n} state variables, {len(anchors)} anchors, {self.actions} actions)"


def scaler_of(c: Config, env: gymnasium.Env[Array, np.int64]) -> StateScaler:
    """The scaler of a run's states."""
    own = rng.generator(c.seed, rng.PUBLIC, "scaler")
    return make_scaler(env, c.scaling, c.scale_low, c.scale_high, own, c.rollout_steps)


def fit_states(c: Config, env: gymnasium.Env[Array, np.int64], scaler: StateScaler) -> Array:
    """Scaled states of random rollouts for encoders that learn from data; where there are none, just their shape."""
    steps = min(FIT_STATES, c.rollout_steps) if any(":" in name for name in c.get("encoder", ())) else 0
    return scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "fit")))


def anchors_of(c: Config, env: gymnasium.Env[Array, np.int64], scaler: StateScaler) -> Array | None:
    """The first anchors of a run; None where its method uses none, or gathers them from its clients."""
    if c.get("anchor_source", "visited") == "visited":
        return None
    own = rng.generator(c.seed, rng.PUBLIC, "anchors")
    return make_anchors(c.anchor_source, c.anchors, c.anchor_file, env, scaler, own, c.rollout_steps)


def make_public(c: Config) -> Public:
    """Everything that the clients of a run share, drawn from its seed."""
    check_rules(c.env)
    env = make_env(c.env, repeat=c.action_repeat)
    scaler = scaler_of(c, env)
    anchors = anchors_of(c, env, scaler)
    steps = min(PUBLIC_STATES, c.rollout_steps)
    measure = scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "step")))
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    public = Public(scaler, anchors, measure, fit_states(c, env, scaler), actions)
    env.close()
    return public
