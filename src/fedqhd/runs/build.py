"""From settings to clients and their federation; what they are is for their method to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedqhd.agents.client import LocalClient
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Federation
from fedqhd.envs.make import dynamics_of, make_env
from fedqhd.envs.public import Public, make_public
from fedqhd.envs.scaling import StateScaler
from fedqhd.federation import Participant, Privacy, Private, Rounded, Server, Terms
from fedqhd.federation.method import check_federation, method_of
from fedqhd.federation.settings import parse_presence
from fedqhd.runs.limits import check_size

ATTEMPTS = 3
"""How often a round is played for want of valid replies before the run ends."""


class World(NamedTuple):
    """What all clients share in public, what they are, and how the environment of each departs from the nominal one."""

    public: Public
    federation: Federation
    dynamics: list[dict[str, float]]
    members: list[Participant]

    @property
    def scaler(self) -> StateScaler:
        return self.public.scaler


def make_federation(c: Config, terms: Terms, public: Public, secret: bool = False) -> Federation:
    """What the clients of a run exchange, and what they do to their reports before these leave.

    `secret`: the noise of privacy is drawn so that nobody can draw it again, even who knows the seed of the run.
    """
    federation = method_of(c).federation(terms, public)
    check_federation(federation, c.method)
    if c.get("dp_clip"):
        federation = Private(federation, Privacy(c.dp_clip, c.dp_noise, None if secret else c.seed))
    uplink = c.get("uplink", "full")
    return federation if uplink == "full" else Rounded(federation, uplink)


def member(client: LocalClient) -> Participant:
    """What the server knows of a client."""
    like = {k: np.broadcast_to(v.dtype.type(0), v.shape) for k, v in client.agent.params().items()}
    return Participant(client.agent.fingerprint(), client.weight, like)


def make_server(c: Config, members: Sequence[Participant]) -> Server:
    """The server's side of a run. An oracle has no settings of participation: it is always there."""
    settings = ("participation", "late", "late_weight", "max_magnitude")
    return Server(
        list(members),
        present=dict(map(parse_presence, c.get("present", ()))),
        min_clients=min(c.get("min_clients", 1), len(members)),
        attempts=ATTEMPTS if c.get("too_few") == "repeat" else 1,
        rule=method_of(c).rule,
        seed=c.seed,
        **{name: c.values[name] for name in settings if name in c},
    )


def liars(c: Config) -> list[int]:
    """The clients that lie: as many as the share says, whoever they are."""
    if c.get("attack", "none") == "none":
        return []
    drawn = rng.generator(c.seed, rng.PUBLIC, "liars").permutation(c.clients)
    return sorted(int(i) for i in drawn[: round(c.liars * c.clients)])


def make_client(c: Config, client: int, public: Public) -> LocalClient:
    """Client number `client`, as it would be in any run with these settings, whoever the others are."""
    method = method_of(c)
    envs = [make_env(c.env, repeat=c.action_repeat, dynamics=dynamics_of(c, i)) for i in method.sites(client)]
    weights = c.get("weights", "uniform")
    share = None if weights == "steps" else 1.0 if isinstance(weights, str) else weights[client]
    keep = -(-c.anchors // c.clients) if c.get("anchor_source") == "visited" else 0
    return LocalClient(
        client, method.agent(client, public), envs, public.scaler, gamma=c.gamma, seed=c.seed, weight=share,
        keep_states=keep,
    )  # fmt: skip


def build(c: Config) -> tuple[list[LocalClient], World]:
    """The clients of a run, and what they share. Everything random comes from c.seed."""
    public = make_public(c)
    several = method_of(c).clients
    dynamics = [dynamics_of(c, i) for i in range(c.clients)]
    check_size(c, several, public.actions)
    clients = [make_client(c, i, public) for i in several]
    members = [member(client) for client in clients]
    federation = make_federation(c, Terms.of(members), public)
    return clients, World(public, federation, dynamics, members)


def warm_up(c: Config) -> None:
    """Compile the kernels this run will use, or load them from their cache, before any clock runs."""
    for learner in method_of(c).learners(c.values):
        learner.warm_up(c)
