"""Anchors that follow the teacher: the server plays the teacher's policy and uses the states it visits as anchors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedqhd.agents import OnlineQHD, OnlineSettings
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.encoders import BaseEncoder, draw_encoder
from fedqhd.envs.make import make_env
from fedqhd.envs.public import Public
from fedqhd.envs.quick import quick
from fedqhd.envs.rollouts import states_met

TEACHER_EPSILON = 0.1
"""Exploration rate of the teacher's policy during the rollout, so that some anchors lie off its greedy path."""
TEACHER_STEPS = 1
"""Environment steps of the rollout per anchor; half of the new anchors are sampled from the states it visits."""


def server_encoder(c: Config, public: Public) -> BaseEncoder:
    """Draw the encoder into which the server compiles what it plays.

    It has the median dimension of the clients, because it is factorised anew for every set of anchors, which would cost
    as much as the largest client if it were as large.
    """
    dims = sorted(c.dims)
    drawn = rng.generator(c.seed, rng.PUBLIC, "server")
    D = dims[len(dims) // 2]
    return draw_encoder(c.encoder[0], public.n, D, c.sigma, drawn, public.fit_states, public.grid)


def teacher_rollout(c: Config, public: Public) -> Callable[[Array, Array, int], Array]:
    """Return the function (anchors (m, n), Q_bar (m, A), episodes played) -> the next anchors (m, n).

    Half of the next anchors are sampled from the old ones, so that the clients do not forget at once what the teacher
    no longer does; the other half are states that the policy of Q_bar visits.

    To play, the server compiles Q_bar into an encoder of its own, as a client would.
    """
    scaler, encoder = public.scaler, server_encoder(c, public)
    settings = OnlineSettings(lam=c.lam, compile="overwrite", epsilon_start=TEACHER_EPSILON)

    def rollout(anchors: Array, Q: Array, episodes: int) -> Array:
        own = np.random.default_rng(rng.env_seed(c.seed, rng.PUBLIC, "teacher", episodes))
        student = OnlineQHD(encoder, public.actions, settings, own)
        student.fit_anchors(anchors, Q)
        env = quick(make_env(c.env, repeat=c.action_repeat))
        met = scaler(states_met(env, TEACHER_STEPS * len(anchors), own, lambda s: student.act(scaler(s))))
        env.close()
        kept = len(anchors) // 2
        return np.vstack([own.permutation(anchors)[:kept], own.permutation(met)[: len(anchors) - kept]])

    return rollout
