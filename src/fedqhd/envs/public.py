"""What all clients of a run share: the scaling of states, the anchors, and states to measure and fit encoders on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.envs.adapt import Env, Grid, actions_of, check_rules, grid_of
from fedqhd.envs.anchors import make_anchors
from fedqhd.envs.make import make_env
from fedqhd.envs.quick import quick
from fedqhd.envs.rollouts import random_states
from fedqhd.envs.scaling import StateScaler, make_scaler

T = TypeVar("T")

MEASURE_STATES = 500
FIT_STATES = 2000
COPIES = 4
"""How many arrays of the size of the random rollouts exist at once while the scaling is computed."""


class Public(NamedTuple):
    """What all clients share. Every client derives it from the settings and the seed, so none of it is sent."""

    scaler: StateScaler
    anchors: Array | None
    """The first anchors, scaled (m, n); None if the method has none or if they come from the clients."""
    measure_states: Array
    """Scaled states of random rollouts, on which a client measures its features."""
    fit_states: Array
    """Scaled states of random rollouts, to which a client may fit its encoder."""
    actions: int
    """Number of actions, or of the numbers that a continuous action consists of."""
    bounds: Array | None = None
    """The lowest and the highest continuous action, (2, actions); None if actions are discrete."""
    grid: Grid | None = None
    """The shape (H, W, C) of the grid that a state is made from; None if observations are no grids."""

    shared: dict[Any, Any] | None = None
    """What clients in one process share besides; see `once`."""

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned when it was first called for this key, or call it."""
        if self.shared is None:
            return make()
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    @property
    def n(self) -> int:
        """Number of state variables."""
        return len(self.scaler.shift)

    def fingerprint(self) -> str:
        """Return a text that is equal where Q at the anchors has the same meaning, with the sizes for the reader."""
        anchors = np.zeros((0, self.n), np.float32) if self.anchors is None else self.anchors
        digest = hashlib.sha256()
        for part in (*self.scaler, anchors, *([] if self.bounds is None else [self.bounds])):
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"{digest.hexdigest()[:16]} ({self.n} state variables, {len(anchors)} anchors, {self.actions} actions)"


def scaler_of(c: Config, env: Env) -> StateScaler:
    """Return the scaler of a run's states."""
    generator = rng.generator(c.seed, rng.PUBLIC, "scaler")
    return make_scaler(env, c.scaling, c.scale_low, c.scale_high, generator, c.rollout_steps)


def fit_states(c: Config, env: Env, scaler: StateScaler) -> Array:
    """Return scaled states (k, n) of random rollouts for fitting encoders; k = 0 if no encoder is custom."""
    steps = min(FIT_STATES, c.rollout_steps) if any(":" in name for name in c.get("encoder", ())) else 0
    return scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "fit")))


def anchors_of(c: Config, env: Env, scaler: StateScaler) -> Array | None:
    """Return the first anchors of a run; None if its method uses none or gathers them from its clients."""
    if c.get("anchor_source", "visited") == "visited":
        return None
    generator = rng.generator(c.seed, rng.PUBLIC, "anchors")
    return make_anchors(c.anchor_source, c.anchors, c.anchor_file, env, scaler, generator, c.rollout_steps)


def public_bytes(c: Config, n: int) -> int:
    """Return the bytes that `make_public` needs for states of n variables."""
    m = c.get("anchors", 0)
    return 8 * n * max(COPIES * c.rollout_steps, 2 * m) + 4 * n * (m + MEASURE_STATES + FIT_STATES)


def make_public(c: Config) -> Public:
    """Return everything that the clients of a run share, drawn from its seed. The environment is checked first."""
    check_rules(c.env)
    env = quick(make_env(c.env, repeat=c.action_repeat))
    scaler = scaler_of(c, env)
    anchors = anchors_of(c, env, scaler)
    steps = min(MEASURE_STATES, c.rollout_steps)
    measure = scaler(random_states(env, steps, rng.generator(c.seed, rng.PUBLIC, "step")))
    actions, bounds = actions_of(env)
    public = Public(scaler, anchors, measure, fit_states(c, env, scaler), actions, bounds, grid_of(env), {})
    env.close()
    return public
