"""Anchors that move: the server plays the policy it teaches, and asks about the states which that meets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedqhd.agents import OnlineQHD, OnlineSettings
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.encoders import draw_encoder
from fedqhd.envs.make import make_env
from fedqhd.envs.public import Public
from fedqhd.envs.rollouts import states_met

TEACHER_EPSILON = 0.1
"""Exploration of the teacher's policy while it looks for anchors, so that they lie around its path too."""
TEACHER_STEPS = 1
"""Steps that it plays for each anchor; half of the anchors are states met in them."""


def teacher_rollout(c: Config, public: Public) -> Callable[[Array, Array, int], Array]:
    """(anchors, Q_bar, episodes played) -> the next anchors: half of them as before, so that what the teacher does not
    do any more is not forgotten at once, and half states that the policy of Q_bar meets.

    The server plays as a client would: Q_bar compiled into an encoder of its own, of the clients' middle dimension,
    since its factorisation at every new set of anchors would cost as much as that of the largest client.
    """
    scaler, dims = public.scaler, sorted(c.dims)
    drawn = rng.generator(c.seed, rng.PUBLIC, "server")
    encoder = draw_encoder(c.encoder[0], public.n, dims[len(dims) // 2], c.sigma, drawn, public.fit_states)
    settings = OnlineSettings(lam=c.lam, compile="overwrite", epsilon_start=TEACHER_EPSILON)

    def rollout(anchors: Array, Q: Array, episodes: int) -> Array:
        own = np.random.default_rng(rng.env_seed(c.seed, rng.PUBLIC, "teacher", episodes))
        student = OnlineQHD(encoder, public.actions, settings, own)
        student.fit_anchors(anchors, Q)
        env = make_env(c.env, repeat=c.action_repeat)
        met = scaler(states_met(env, TEACHER_STEPS * len(anchors), own, lambda s: student.act(scaler(s))))
        env.close()
        kept = len(anchors) // 2
        return np.vstack([own.permutation(anchors)[:kept], own.permutation(met)[: len(anchors) - kept]])

    return rollout
