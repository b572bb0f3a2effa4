"""The protocols and records of the package: what each part expects of the others.

    state -> encoder -> agent -> client -> federation -> engine -> run -> study -> report

A file imports only from files to its left in that line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Payload = Mapping[str, Array]
"""What clients and server send to each other: named arrays and nothing else, in particular no pickles."""


def under(p: Payload, prefix: str) -> dict[str, Array]:
    """Return the arrays of a payload whose names begin with `prefix`, with the prefix removed from their names."""
    return {k.removeprefix(prefix): v for k, v in p.items() if k.startswith(prefix)}


class Transition(NamedTuple):
    """One step of an agent: state, action, reward, discount, next state.

    `discount` is gamma, or 0 if the episode terminated; a truncated episode therefore bootstraps.
    """

    s: Array
    a: Any
    """The number of a discrete action, or a continuous action as a vector."""
    r: float
    discount: float
    s_next: Array


class Encoder(Protocol):
    """A fixed map from a scaled state to a hypervector, with norm at most 1."""

    @property
    def n(self) -> int:
        """Number of state variables."""
        ...

    @property
    def D(self) -> int:
        """Dimension of the hypervector."""
        ...

    def __call__(self, s: Array) -> Array:
        """Encode states (B, n) as X (B, D). Row l is Phi(s_l)^H, so Q = Re(X W)."""
        ...

    def fingerprint(self) -> str:
        """Return a hash that is equal for two encoders exactly when they are the same map."""
        ...


class Model(Protocol):
    """A trained policy, usually as its Q-function, which needs no learner to be saved and used."""

    kind: ClassVar[str]
    """The name of this kind of model in files; empty for a class of the user, whose `module:Class` is used."""

    @property
    def n(self) -> int:
        """Number of state variables."""
        ...

    @property
    def actions(self) -> int:
        """Number of actions, or of the numbers that a continuous action consists of."""
        ...

    def q(self, Z: Array) -> Array:
        """Return the Q-values (B, A) of scaled states Z (B, n) in float32. A model of continuous actions has none."""
        ...

    def act(self, Z: Array) -> Array:
        """Return the greedy actions of scaled states Z (B, n): numbers (B,), or continuous actions (B, k)."""
        ...

    def random_actions(self, generator: np.random.Generator, count: int) -> Array:
        """Return uniformly random actions, (count,) or (count, k)."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are saved in the file of the model."""
        ...

    def about(self) -> dict[str, Any]:
        """Return the JSON values that are saved beside the arrays."""
        ...


class Agent(Protocol):
    """Acts and learns. An agent owns its weights, its replay memory, its exploration and its random generators."""

    epsilon: float
    updates: int
    """Number of updates so far, where an update is a minibatch or, online, a single step."""

    def act(self, s: Array) -> Any:
        """Choose an action in the scaled state s (n,): a number, or a continuous action as a vector.

        Agents with Q-values choose epsilon-greedily and break ties at random.
        """
        ...

    def q(self, s: Array) -> Array:
        """Return the Q-values (B, A) of scaled states s (B, n)."""
        ...

    def model(self) -> Model:
        """Return the present Q-function as a model that does not change when the agent learns."""
        ...

    def observe(self, t: Transition) -> None:
        """Learn from a transition. It is called after every step of the environment."""
        ...

    def end_episode(self) -> None:
        """Decay epsilon and synchronise the target weights if they are due."""
        ...

    def sync_target(self) -> None:
        """Copy the weights to the target weights. It is called at the end of every round, federated or not."""
        ...

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Compile a teacher: change the weights so that the values at the anchors (m, n) approach Q (m, A)."""
        ...

    def params(self) -> Payload:
        """Return copies of the parameters, for parameter averaging."""
        ...

    def load(self, p: Payload) -> None:
        """Set the weights and the target weights, but keep the replay memory and epsilon."""
        ...

    def fingerprint(self) -> str:
        """Return a text that is equal for two agents exactly when averaging their parameters averages their Q."""
        ...

    def state(self) -> Payload:
        """Return everything that is needed to resume and cannot be derived.

        After a round of steps, this may be in the middle of an episode.
        """
        ...

    def restore(self, p: Payload) -> None:
        """Continue from a state that `state` returned."""
        ...


class Quota(NamedTuple):
    """How much each client plays: a number of episodes or, if `steps` is above 0, of steps of its environment."""

    episodes: int = 0
    steps: int = 0

    @property
    def amount(self) -> int:
        """The number of steps or episodes."""
        return self.steps or self.episodes

    def of(self, amount: int) -> Quota:
        """Return another number of the same, steps or episodes."""
        return Quota(steps=amount) if self.steps else Quota(amount)


class Episode(NamedTuple):
    """The record of one training episode: its return `ret`, and its `length` in steps of the environment."""

    client: int
    episode: int
    ret: float
    length: int
    epsilon: float


class Reply(NamedTuple):
    """What a client sends to the server after a round.

    `weight` is not normalised, `fingerprint` is that of its agent, and `seconds` is the time spent by activity.
    """

    client: int
    payload: Payload
    weight: float
    steps: int
    episodes: tuple[Episode, ...]
    fingerprint: str
    seconds: Mapping[str, float]

    def note(self) -> list[Any]:
        """Return all but the payload as JSON values, from which `from_note` makes the reply again."""
        return list(self._replace(payload={}, seconds=dict(self.seconds)))

    @classmethod
    def from_note(cls, note: Sequence[Any], payload: Payload) -> Reply:
        """Return the reply with this note and this payload."""
        client, _, weight, steps, episodes, fingerprint, seconds = note
        return cls(client, payload, weight, steps, tuple(Episode(*e) for e in episodes), fingerprint, seconds)


def weight_due(share: float | None, steps: int) -> float:
    """Return the weight pi that a reply must have, before weights are normalised.

    It is the fixed share of the client or, if that is None, the steps that it took in the round. Clients send this
    weight, and the server checks it.
    """
    return steps if share is None else share


class Client(Protocol):
    """One agent and its environment."""

    index: int
    agent: Agent
    episodes: int
    """Number of episodes played so far."""
    before: Payload
    """What it would have reported before it trained in this round, if a federation keeps it here."""

    @property
    def open_steps(self) -> int:
        """The steps of the episode that it is in the middle of; 0 between episodes, as after a round of episodes."""
        ...

    def play(self, quota: Quota, on_episode: Callable[[Episode], None]) -> tuple[Episode, ...]:
        """Train for some episodes or steps, and return the records of the episodes that ended.

        `on_episode` is called after each of them. An episode that is still open goes on when this is called again.
        """
        ...

    def visited(self, k: int) -> Array:
        """Return up to k of the scaled states visited so far (k, n). Only federations that share states call this."""
        ...


class Expected(NamedTuple):
    """What the server accepts as one array of a reply."""

    shape: tuple[int | None, ...]
    """The shape; a dimension of None may have any size."""
    kind: str
    """The kind of its dtype in numpy: "f" for real numbers, "c" for complex ones."""
    least: float = -math.inf
    """The smallest value that an element may have."""
    votes: bool = True
    """Whether aggregation compares this array between clients to detect outliers."""
    gram: bool = False
    """Whether it holds sums of squares X^T X, that is, symmetric matrices without negative eigenvalues."""


class Federation(Protocol):
    """What a client sends, what the server computes, and what a client installs.

    The object itself never changes, so several clients and processes can share it. Two things change from round to
    round: the state, which stays on the server, and the teacher, which the server sends to the clients.
    """

    def start(self) -> Payload:
        """Return the server's state before the first round; most federations have an empty one."""
        ...

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        """Return what a client sends after it has trained.

        `teacher` is what the client installed before it trained, or None in the first round.
        """
        ...

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        """Return what the arrays of a report after this teacher look like, or None if that is not known in advance."""
        ...

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        """Return the server's next state and the teacher that it sends.

        This is a pure function: it changes neither `state` nor `replies`, and the same arguments give the same result.
        Every reply carries its weight, so clients that drop out or join late need no special case.
        """
        ...

    def install(self, client: Client, teacher: Payload) -> None:
        """Install a teacher in the agent of a client."""
        ...
