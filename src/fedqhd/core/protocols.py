"""Every protocol and record of the package: the map of who talks to whom.

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
"""What travels: named arrays, nothing else, never pickles."""


SPAN = 4.0
"""Where an environment's box is known, its states are scaled to [-SPAN, SPAN]: about what standard deviations give,
so that one bandwidth means much the same whatever the scaling."""


def under(p: Payload, prefix: str) -> dict[str, Array]:
    """The arrays of a payload whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in p.items() if k.startswith(prefix)}


class Transition(NamedTuple):
    """One step. ``discount`` = gamma * (1 - terminated), so truncation bootstraps."""

    s: Array
    a: int
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
        """(B, n) -> (B, D); row l is Phi(s_l)^H, so Q = Re(X W)."""
        ...

    def fingerprint(self) -> str:
        """A hash, equal exactly when the two maps are equal."""
        ...


class Model(Protocol):
    """What a trained agent leaves behind: Q as it is saved and played. `arrays` and `about` are its file."""

    kind: ClassVar[str]

    @property
    def n(self) -> int: ...

    @property
    def actions(self) -> int: ...

    def q(self, Z: Array) -> Array:
        """(B, n) scaled states, float32 -> (B, A)."""
        ...

    def arrays(self) -> dict[str, Array]: ...

    def about(self) -> dict[str, Any]: ...


class Agent(Protocol):
    """Owns all it learns with: weights, replay, exploration, its own generators."""

    epsilon: float
    updates: int
    """How often it learned so far: minibatches, or single steps online."""

    def act(self, s: Array) -> int:
        """Epsilon-greedy, ties at random."""
        ...

    def q(self, s: Array) -> Array:
        """(B, n) -> (B, A)."""
        ...

    def model(self) -> Model:
        """Q as it is now, apart from the learner."""
        ...

    def observe(self, t: Transition) -> None:
        """After every step. Online: one TD step. Replay: store, sometimes a minibatch."""
        ...

    def end_episode(self) -> None:
        """Epsilon decay and target sync."""
        ...

    def sync_target(self) -> None:
        """W_target <- W; done at every round boundary, federated or not."""
        ...

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Compile a teacher: values Q (m, A) wanted at the anchors (m, n)."""
        ...

    def params(self) -> Payload:
        """What parameter averaging exchanges. Copies, never views."""
        ...

    def load(self, p: Payload) -> None:
        """Sets the weights and their delayed copy; keeps replay and epsilon."""
        ...

    def fingerprint(self) -> str:
        """Equal for two agents exactly when averaging their parameters averages their Q."""
        ...

    def state(self) -> Payload:
        """All that resuming needs. What can be derived is rebuilt, identically, instead."""
        ...

    def restore(self, p: Payload) -> None: ...


class Episode(NamedTuple):
    """What is measured of one training episode."""

    client: int
    episode: int
    ret: float
    length: int
    epsilon: float


class Reply(NamedTuple):
    """What a client sends back after a round."""

    client: int
    payload: Payload
    weight: float
    steps: int
    episodes: tuple[Episode, ...]
    fingerprint: str
    seconds: Mapping[str, float]


def weight_due(share: float | None, steps: int) -> float:
    """The weight pi of a reply before weights are normalised: the client's share, or None for the steps of the round.

    Clients send it, and the server checks it against what it knows.
    """
    return steps if share is None else share


class Client(Protocol):
    """One agent in one environment, at its own site."""

    index: int
    agent: Agent
    episodes: int
    """How many it has played so far."""

    def play(self, episodes: int, on_episode: Callable[[Episode], None]) -> tuple[Episode, ...]: ...

    def visited(self, k: int) -> Array:
        """k of the (scaled) states met so far; only a federation that was told to share states asks."""
        ...


class Expected(NamedTuple):
    """What an array must look like to be accepted; a size of None is free."""

    shape: tuple[int | None, ...]
    kind: str
    """numpy's kind of number: "f" real, "c" complex."""
    least: float = -math.inf
    votes: bool = True
    """Whether aggregation compares it between clients, to find out whom to believe."""


class Federation(Protocol):
    """What a client sends, what the server computes, what a client installs.

    The object itself never changes, so several clients and processes can share it. What changes from round to round is
    the server's state, which only the server has, and the teacher, which travels to the clients.
    """

    def start(self) -> Payload:
        """The server's state before the first round; empty for most."""
        ...

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        """What a client sends after it has trained.

        `teacher` is the one that it installed before, or None in the first round.
        """
        ...

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        """What a report after this teacher looks like; None where that is not known beforehand."""
        ...

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        """The server's next state, and the teacher that it sends.

        This is a pure function: neither `state` nor `replies` change, and the same arguments give the same result.
        Weights come with the replies, so dropouts and late joiners need no special case.
        """
        ...

    def install(self, client: Client, teacher: Payload) -> None:
        """Bring a teacher into a client's agent."""
        ...


class Engine(Protocol):
    """Where clients live. Replies come ordered by client; a client's error surfaces here."""

    def round(self, teacher: Payload | None, episodes: int, clients: Sequence[int] | None = None) -> list[Reply]:
        """Install, train, report: one exchange with the given clients, or with all."""
        ...

    def finish(self, teacher: Payload) -> None:
        """Install the last teacher."""
        ...

    def each(self, f: Callable[[Any], Any]) -> list[Any]:
        """f of every client, computed where it lives, in client order."""
        ...

    def cpu_seconds(self) -> float:
        """Of all processes that the clients live in."""
        ...

    def state(self) -> Payload:
        """All that resuming needs of the clients, as CLIENT/NAME; of those that keep themselves, nothing."""
        ...

    def restore(self, arrays: Payload) -> None: ...

    def close(self) -> None: ...


def real_view(W: Array) -> Array:
    """(D, A) weights in Fortran order as the real rows (A, R) that the kernels read; a view, never a copy.

    Complex weights are seen as interleaved real and imaginary parts (R = 2D), because
    Re(Phi^H w) = Re Phi . Re w + Im Phi . Im w is a real dot product of such rows.
    """
    rows = W.T
    return rows.view(W.real.dtype) if np.iscomplexobj(W) else rows
