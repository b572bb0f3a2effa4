"""Builds the clients, the federation and the server of a run from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedqhd.agents.client import LocalClient
from fedqhd.agents.learner import check_actions
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Federation
from fedqhd.envs.make import dynamics_of, make_env, spaces_of, step_limit
from fedqhd.envs.public import Public, make_public
from fedqhd.envs.scaling import StateScaler
from fedqhd.federation import Participant, Privacy, Private, Rounded, Server, Stepped, Terms
from fedqhd.federation.asked import LONGEST
from fedqhd.federation.fedqhd import ThroughAnchors
from fedqhd.federation.method import check_federation, method_of
from fedqhd.federation.play import Stage
from fedqhd.federation.settings import parse_presence
from fedqhd.runs.limits import check_size

ATTEMPTS = 3
"""How often a round with too few valid replies is played before the run ends, with too_few=repeat."""


class World(NamedTuple):
    """What a run consists of besides its clients."""

    public: Public
    """What all clients share."""
    federation: Federation
    dynamics: list[dict[str, float]]
    """The parameters in which the environment of each client differs from the nominal one."""
    members: list[Participant]
    """What the server knows of each client."""
    loop: str = ""
    """Where clients of this process play their episodes: "compiled", "python", or "compiled, python" if they differ."""

    @property
    def scaler(self) -> StateScaler:
        return self.public.scaler


def make_federation(c: Config, terms: Terms, public: Public, secret: bool = False) -> Federation:
    """Make the federation of a run, wrapped in a server step, differential privacy and rounding if these are set.

    Args:
        c: The settings of the run.
        terms: What the server knows of the clients as a group.
        public: What all clients share.
        secret: Whether to draw the noise of differential privacy so that nobody can reproduce it, not even with the
            seed of the run.

    Raises:
        FedQHDError: If the method's federation lacks a part of the protocol.
    """
    federation = method_of(c).federation(terms, public)
    check_federation(federation, c.method)
    step, momentum = c.get("server_step", 1.0), c.get("server_momentum", 0.0)
    if step != 1 or momentum:
        federation = Stepped(federation, step, momentum, shared=not isinstance(federation, ThroughAnchors))
    if c.get("dp_clip"):
        federation = Private(federation, Privacy(c.dp_clip, c.dp_noise, None if secret else c.seed))
    uplink = c.get("uplink", "full")
    return federation if uplink == "full" else Rounded(federation, uplink)


def member(client: LocalClient) -> Participant:
    """Return what the server knows of a client."""
    like = {k: np.broadcast_to(v.dtype.type(0), v.shape) for k, v in client.agent.params().items()}
    return Participant(client.agent.fingerprint(), client.weight, like)


def share_of(c: Config, client: int) -> float | None:
    """Return a client's share in the aggregate as the settings have it; None stands for its steps in a round."""
    weights = c.get("weights", "uniform")
    return None if weights == "steps" else 1.0 if isinstance(weights, str) else weights[client]


def make_server(c: Config, members: Sequence[Participant], public: Public) -> Server:
    """Make the server of a run, which sets the weights of the clients, whatever they claim.

    An oracle has no settings of participation, so it takes part in every round.
    """
    method = method_of(c)
    settings = ("participation", "late", "late_weight", "max_magnitude")
    rule = method.rule
    return Server(
        [m._replace(weight=share_of(c, i)) for i, m in enumerate(members)],
        sites=len(method.sites(0)),
        # If weights are steps, a client must not gain by inventing some.
        longest=step_limit(c.env) if c.get("weights") == "steps" else LONGEST,
        present=dict(map(parse_presence, c.get("present", ()))),
        min_clients=min(c.get("min_clients", 1), len(members)),
        attempts=ATTEMPTS if c.get("too_few") == "repeat" else 1,
        repeat=c.action_repeat,
        rule=rule,
        stage=Stage(c, public) if rule.plays else None,
        seed=c.seed,
        **{name: c.values[name] for name in settings if name in c},
    )


def liars(c: Config) -> list[int]:
    """Draw the clients that lie, a share `liars` of all; none without an attack."""
    if c.get("attack", "none") == "none":
        return []
    drawn = rng.generator(c.seed, rng.PUBLIC, "liars").permutation(c.clients)
    return sorted(int(i) for i in drawn[: round(c.liars * c.clients)])


def make_client(c: Config, client: int, public: Public) -> LocalClient:
    """Make one client, which does not depend on which other clients are made."""
    method = method_of(c)
    envs = [make_env(c.env, repeat=c.action_repeat, dynamics=dynamics_of(c, i)) for i in method.sites(client)]
    keep = -(-c.anchors // c.clients) if c.get("anchor_source") == "visited" else 0
    return LocalClient(
        client, method.agent(client, public), envs, public.scaler, gamma=c.gamma, seed=c.seed,
        weight=share_of(c, client), keep_states=keep, loop=c.get("loop", "auto"),
    )  # fmt: skip


def check_environment(c: Config, clients: Sequence[int]) -> None:
    """Raise FedQHDError if the environment does not suit these clients, before anything is played in it.

    It must have actions that their learners learn, and states that fit into memory.
    """
    spaces = spaces_of(c.env)
    for learner in method_of(c).learners(c.values):
        check_actions(learner, spaces.bounds, c.env)
    check_size(c, clients, spaces.n, spaces.actions)


def build(c: Config) -> tuple[list[LocalClient], World]:
    """Make the clients of a run and what they share. All random numbers derive from c.seed.

    Raises:
        FedQHDError: If the learners do not suit the environment, or if the run does not fit into memory.
    """
    indices = method_of(c).clients
    check_environment(c, indices)
    public = make_public(c)
    dynamics = [dynamics_of(c, i) for i in range(c.clients)]
    clients = [make_client(c, i, public) for i in indices]
    members = [member(client) for client in clients]
    federation = make_federation(c, Terms.of(members), public)
    loop = ", ".join(sorted({client.loop for client in clients}))
    return clients, World(public, federation, dynamics, members, loop)


def warm_up(c: Config, clients: Sequence[LocalClient]) -> None:
    """Compile the kernels that these clients use, or load them from their cache, before time is measured."""
    if any(client.loop == "python" for client in clients):
        for learner in method_of(c).learners(c.values):
            learner.warm_up(c)
    for client in {type(client.agent): client for client in clients}.values():
        client.warm_up()
