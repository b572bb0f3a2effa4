"""From settings to clients and their federation: which method is which agents with which exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedqhd.agents import LEARNERS, QHDSettings
from fedqhd.agents.client import LocalClient
from fedqhd.agents.dqn import DQN, DQNSettings
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Federation, Transition
from fedqhd.encoders import ENCODERS, BaseEncoder, draw_encoder
from fedqhd.envs.make import check_dynamics, draw_dynamics, make_env
from fedqhd.envs.scaling import StateScaler
from fedqhd.federation import (
    AnchorCompile,
    Distilled,
    Independent,
    NormalExchange,
    ParameterAverage,
    Participant,
    PrecisionCompile,
    Privacy,
    Private,
    Rounded,
    Server,
    TeacherAnchors,
    Terms,
    Truncated,
    VisitedAnchors,
    choose,
    rule_of,
)
from fedqhd.linalg.geometry import normalised_step
from fedqhd.runs.checks import parse_presence, parse_range
from fedqhd.runs.config import Config
from fedqhd.runs.limits import check_size, dimension, kept_as, kind_of
from fedqhd.runs.public import Public, make_public
from fedqhd.runs.teacher import teacher_rollout

ATTEMPTS = 3
"""How often a round is played for want of valid replies before the run ends."""

Settings = TypeVar("Settings")


class World(NamedTuple):
    """What all clients share in public, what they are, and how the environment of each departs from the nominal one."""

    public: Public
    federation: Federation
    dynamics: list[dict[str, float]]
    members: list[Participant]

    @property
    def scaler(self) -> StateScaler:
        return self.public.scaler


def make_encoder(c: Config, client: int, states: Array) -> BaseEncoder:
    """Homogeneous: the same draw for all. Heterogeneous: each its own D_i, sigma_i and draw, and kinds cycled.

    The (scaled) states are for encoders that learn from data.
    """
    own = rng.generator(c.seed, rng.PUBLIC if c.setting == "homogeneous" else client, "encoder")
    alike = c.setting == "homogeneous" or c.method == "oracle-qhd"
    sigma = c.sigma if alike else c.sigma * own.uniform(1 - c.sigma_spread, 1 + c.sigma_spread)
    name = c.encoder[0 if alike else client % len(c.encoder)]
    return draw_encoder(name, states.shape[1], dimension(c, client), sigma, own, states)


def settings_of(kind: type[Settings], c: Config, **others: Any) -> Settings:
    """The settings of an agent: those of the run that bear the same name, and `others`."""
    names = [f.name for f in dataclasses.fields(kind) if hasattr(c, f.name)]  # type: ignore[arg-type]
    return kind(**{name: getattr(c, name) for name in names}, **others)


def make_qhd(c: Config, client: int, public: Public, actions: int) -> Agent:
    encoder = make_encoder(c, client, public.fit)
    settings = dataclasses.replace(settings_of(QHDSettings, c), features=features_of(c, encoder))
    if c.step == "normalised" and c.learner != "least-squares":
        B = 1 if c.learner == "online" else c.batch_size
        settings = dataclasses.replace(settings, eta=normalised_step(c.eta, B, encoder(public.measure)))
    return LEARNERS[c.learner](encoder, actions, settings, rng.generator(c.seed, client, "agent"))


def features_of(c: Config, encoder: BaseEncoder) -> str:
    """How this encoder's hypervectors are kept."""
    if not encoder.fused and c.learner != "online" and c.features == "int8":
        raise FedQHDError(
            f"features=int8 needs every feature within 1/sqrt(D), which encoder={encoder.name!r} does not promise: "
            "choose float32 or recompute"
        )
    return kept_as(c, own=not encoder.fused)


def make_dqn(c: Config, client: int, n: int, actions: int, hidden: Sequence[int]) -> DQN:
    settings = settings_of(DQNSettings, c, fit_loss="kl" if c.method == "distilled-feddqn" else "mse")
    # Parameters can only be averaged where they started from the same point.
    start = rng.PUBLIC if c.setting == "homogeneous" else client
    own, init = rng.generator(c.seed, client, "agent"), rng.generator(c.seed, start, "network")
    return DQN(n, actions, hidden, settings, own, init)


def make_agent(c: Config, client: int, public: Public, actions: int) -> Agent:
    hidden = kind_of(c, client)
    n = public.measure.shape[1]
    return make_dqn(c, client, n, actions, hidden) if hidden else make_qhd(c, client, public, actions)


def make_federation(c: Config, terms: Terms, public: Public, secret: bool = False) -> Federation:
    """What the method exchanges, and what clients do to their reports before they leave.

    `secret`: the noise of privacy is drawn so that nobody can draw it again, even who knows the seed of the run.
    """
    federation = bare_federation(c, terms, public)
    if c.dp_clip:
        federation = Private(federation, Privacy(c.dp_clip, c.dp_noise, None if secret else c.seed))
    return federation if c.uplink == "full" else Rounded(federation, c.uplink)


def bare_federation(c: Config, terms: Terms, public: Public) -> Federation:
    """Each method is one idea of what is exchanged."""
    scaler, anchors, actions = public.scaler, public.anchors, public.actions
    combine = rule_of(c.aggregate).combine
    if c.method in ("independent-qhd", "oracle-qhd", "oracle-dqn"):
        return Independent()
    if c.method == "truncated-fedavg-qhd":
        return Truncated(terms.like, combine)
    if c.method == "fedavg-dqn":
        return ParameterAverage(terms.like, combine)
    if c.exchange == "statistics":
        return NormalExchange(c.fit_lam, c.damping, terms.like)
    if anchors is None:
        return choose(terms, VisitedAnchors(c.anchors, c.clients, len(scaler.shift), actions, combine), combine)
    if c.method == "distilled-feddqn":
        return Distilled(anchors, actions, combine, temperature=c.temperature)
    compiled = (PrecisionCompile if c.weights == "precision" else AnchorCompile)(anchors, actions, combine)
    through_anchors: Federation = compiled
    if c.anchor_source == "teacher":
        through_anchors = TeacherAnchors(compiled, teacher_rollout(c, scaler, actions, public.fit))
    # W alone does not say how certain it is.
    return through_anchors if c.weights == "precision" else choose(terms, through_anchors, combine)


def member(client: LocalClient) -> Participant:
    like = {k: np.broadcast_to(v.dtype.type(0), v.shape) for k, v in client.agent.params().items()}
    return Participant(client.agent.fingerprint(), client.weight, like)


def make_server(c: Config, members: Sequence[Participant]) -> Server:
    return Server(
        list(members),
        present=dict(map(parse_presence, c.present)),
        participation=c.participation,
        late=c.late,
        late_weight=c.late_weight,
        min_clients=min(c.min_clients, len(members)),
        attempts=ATTEMPTS if c.too_few == "repeat" else 1,
        max_magnitude=c.max_magnitude,
        rule=rule_of(c.aggregate),
        seed=c.seed,
    )


def liars(c: Config) -> list[int]:
    """The clients that lie: as many as the share says, whoever they are."""
    if c.attack == "none":
        return []
    drawn = rng.generator(c.seed, rng.PUBLIC, "liars").permutation(c.clients)
    return sorted(int(i) for i in drawn[: round(c.liars * c.clients)])


def dynamics_of(c: Config, client: int) -> dict[str, float]:
    """How the environment of a client departs from the nominal one."""
    ranges = [parse_range(spec) for spec in c.dynamics]
    if not ranges:
        return {}
    env = make_env(c.env)
    check_dynamics(env, c.env, ranges)
    env.close()
    return draw_dynamics(ranges, rng.generator(c.seed, client, "world"))


def make_client(c: Config, client: int, public: Public) -> LocalClient:
    """Client number `client`, as it would be in any run with these settings, whoever the others are."""
    # An oracle is one agent that has the environments of all.
    sites = range(c.clients) if c.method.startswith("oracle") else [client]
    envs = [make_env(c.env, repeat=c.action_repeat, dynamics=dynamics_of(c, i)) for i in sites]
    agent = make_agent(c, client, public, public.actions)
    share = None if c.weights == "steps" else 1.0 if isinstance(c.weights, str) else c.weights[client]
    keep = -(-c.anchors // c.clients) if c.anchor_source == "visited" else 0
    return LocalClient(
        client, agent, envs, public.scaler, gamma=c.gamma, seed=c.seed, weight=share, keep_states=keep,
    )  # fmt: skip


def build(c: Config) -> tuple[list[LocalClient], World]:
    """The clients of a run, and what they share. Everything random comes from c.seed."""
    public = make_public(c)
    several = range(1 if c.method.startswith("oracle") else c.clients)
    dynamics = [dynamics_of(c, i) for i in range(c.clients)]
    check_size(c, several, public.actions)
    clients = [make_client(c, i, public) for i in several]
    members = [member(client) for client in clients]
    federation = make_federation(c, Terms.of(members), public)
    return clients, World(public, federation, dynamics, members)


def warm_up(c: Config) -> None:
    """Compile the kernels this run will use, or load them from their cache, before any clock runs."""
    for name in set(c.encoder) & set(ENCODERS):
        encoder = ENCODERS[name].sample(1, 8, 1.0, np.random.default_rng(0))
        settings = settings_of(QHDSettings, c)
        settings = dataclasses.replace(settings, batch_size=1, update_every=1, features=features_of(c, encoder))
        agent = LEARNERS[c.learner](encoder, 2, settings, np.random.default_rng(0))
        s = np.zeros(1, np.float32)
        agent.observe(Transition(s, agent.act(s), 0.0, 0.0, s))
