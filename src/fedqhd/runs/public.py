"""What all clients of a run share in public: scaling, anchors, and states to measure features on or fit encoders to."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import gymnasium
import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import check_rules
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import StateScaler, make_scaler
from fedqhd.runs.config import Config

PUBLIC_STATES = 500
FIT_STATES = 2000


class Public(NamedTuple):
    """What all clients share: everyone can make it from the settings and a seed, so none of it travels."""

    scaler: StateScaler
    anchors: Array | None
    measure: Array
    """States of random rollouts, scaled: on these a client measures its own features."""
    fit: Array
    """On these it may fit an encoder."""
    actions: int

    def fingerprint(self) -> str:
        """Equal where Q on the anchors means the same; with how many state variables, anchors and actions."""
        anchors = np.zeros((0, len(self.scaler.shift)), np.float32) if self.anchors is None else self.anchors
        digest = hashlib.sha256()
        for part in (*self.scaler, anchors):
            digest.update(np.ascontiguousarray(part).tobytes())
        n, m = len(self.scaler.shift), len(anchors)
        return f"{digest.hexdigest()[:16]} ({n} state variables, {m} anchors, {self.actions} actions)"


def scaler_of(c: Config, env: gymnasium.Env[Array, np.int64]) -> StateScaler:
    own = rng.generator(c.seed, rng.PUBLIC, "scaler")
    return make_scaler(env, c.scaling, c.scale_low, c.scale_high, own, c.rollout_steps)


def fit_states(c: Config, env: gymnasium.Env[Array, np.int64], scaler: StateScaler) -> Array:
    """Scaled states of random rollouts for encoders that learn from data; where there are none, just their shape."""
    steps = min(FIT_STATES, c.rollout_steps) if any(":" in name for name in c.encoder) else 0
    return scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "fit")))


def make_public(c: Config) -> Public:
    check_rules(c.env)
    env = make_env(c.env, repeat=c.action_repeat)
    scaler = scaler_of(c, env)
    anchors = None
    if c.anchor_source != "visited":
        anchor_rng = rng.generator(c.seed, rng.PUBLIC, "anchors")
        anchors = make_anchors(c.anchor_source, c.anchors, c.anchor_file, env, scaler, anchor_rng, c.rollout_steps)
    steps = min(PUBLIC_STATES, c.rollout_steps)
    measure = scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "step")))
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    public = Public(scaler, anchors, measure, fit_states(c, env, scaler), actions)
    env.close()
    return public
