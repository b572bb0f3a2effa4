"""From settings to clients and their federation."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fedqhd import rng
from fedqhd.agents import LEARNERS, QHDSettings
from fedqhd.client import LocalClient
from fedqhd.encoders import ENCODERS, BaseEncoder
from fedqhd.envs import StateScaler, make_anchors, make_env, make_scaler, random_states
from fedqhd.experiment.config import Config
from fedqhd.federation import AnchorCompile, VisitedAnchors, choose
from fedqhd.interfaces import Array, Federation, Transition
from fedqhd.theory.geometry import normalised_step

PUBLIC_STATES = 500
"""States of random rollouts on which every client measures its own features."""


class World(NamedTuple):
    """What all clients share in public."""

    scaler: StateScaler
    actions: int
    federation: Federation


def make_encoder(c: Config, client: int, n: int) -> BaseEncoder:
    """Homogeneous: the same draw for all. Heterogeneous: each its own D_i, sigma_i and draw."""
    if c.setting == "homogeneous":
        return ENCODERS[c.encoder].sample(n, c.dims[0], c.sigma, rng.generator(c.seed, rng.PUBLIC, "encoder"))
    own = rng.generator(c.seed, client, "encoder")
    sigma = c.sigma * own.uniform(1 - c.sigma_spread, 1 + c.sigma_spread)
    return ENCODERS[c.encoder].sample(n, c.dims[client % len(c.dims)], sigma, own)


def agent_settings(c: Config, X: Array | None = None) -> QHDSettings:
    """What an agent is told; its step size may depend on its features X at public states."""
    settings = QHDSettings(**{f.name: getattr(c, f.name) for f in dataclasses.fields(QHDSettings)})
    if c.step == "plain" or X is None:
        return settings
    B = 1 if c.learner == "online" else c.batch_size
    return dataclasses.replace(settings, eta=normalised_step(c.eta, B, X))


def make_client(c: Config, client: int, scaler: StateScaler, actions: int, public: Array) -> LocalClient:
    encoder = make_encoder(c, client, len(scaler.shift))
    settings = agent_settings(c, encoder(public))
    agent = LEARNERS[c.learner](encoder, actions, settings, rng.generator(c.seed, client, "agent"))
    share = {"uniform": 1.0, "steps": None}.get(c.weights) if isinstance(c.weights, str) else c.weights[client]
    keep = -(-c.anchors // c.clients) if c.anchor_source == "visited" else 0
    env = make_env(c.env)
    return LocalClient(client, agent, env, scaler, gamma=c.gamma, seed=c.seed, weight=share, keep_states=keep)


def build(c: Config) -> tuple[list[LocalClient], World]:
    """The clients of a run, and what they share. Everything random comes from c.seed."""
    env = make_env(c.env)
    scaler = make_scaler(env, c.scaling, c.scale_low, c.scale_high, rng.generator(c.seed, rng.PUBLIC, "scaler"))
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    anchor_rng = rng.generator(c.seed, rng.PUBLIC, "anchors")
    through_anchors: Federation
    if c.anchor_source == "visited":
        through_anchors = VisitedAnchors(c.anchors, c.clients, len(scaler.shift))
    else:
        through_anchors = AnchorCompile(
            make_anchors(c.anchor_source, c.anchors, c.anchor_file, env, scaler, anchor_rng)
        )
    public = scaler(random_states(env, PUBLIC_STATES, rng.generator(c.seed, rng.PUBLIC, "step")))
    env.close()
    clients = [make_client(c, i, scaler, actions, public) for i in range(c.clients)]
    return clients, World(scaler, actions, choose([k.agent.fingerprint() for k in clients], through_anchors))


def warm_up(c: Config) -> None:
    """Compile the kernels this run will use, or load them from their cache, before any clock runs."""
    encoder = ENCODERS[c.encoder].sample(1, 8, 1.0, np.random.default_rng(0))
    agent = LEARNERS[c.learner](
        encoder, 2, dataclasses.replace(agent_settings(c), batch_size=1, update_every=1), np.random.default_rng(0)
    )
    s = np.zeros(1, np.float32)
    agent.observe(Transition(s, agent.act(s), 0.0, 0.0, s))
