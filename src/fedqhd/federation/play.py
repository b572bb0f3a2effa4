"""Judging replies by playing them: the server compiles each into features of its own and plays it in the public
environment. A liar may look like an honest client in every number that it sends, but not in what its policy earns.
What no policy shows, the size of advantages and the values of states, is levelled so that no client decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedqhd.agents import OnlineQHD, OnlineSettings
from fedqhd.agents.loops import greedy_in_kernel, twin_for
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array
from fedqhd.envs.make import make_env
from fedqhd.envs.public import Public
from fedqhd.federation.follow import server_encoder

EPISODES = 10
"""Greedy episodes per policy. All policies of a round begin in the same states, so that luck cancels out."""
LONGEST = 1000
"""Steps after which an episode is cut off, so that a policy that never ends one cannot hold up the server."""
ERRORS = 2.0
"""How many standard errors below another policy a policy is clearly worse."""
ROUNDING = 1e-12
"""The share of a length below which it is an error of rounding."""


class Played(NamedTuple):
    """What a policy earned."""

    returns: Array
    """The return of each episode, (EPISODES,)."""
    steps: int
    """The steps of all episodes."""


def clearly_worse(returns: Array, others: Array) -> Array:
    """Tell whether policies earned clearly less than another one in episodes that began in the same states.

    Args:
        returns: The returns (..., E) of one or more policies.
        others: The returns (E,) of the policy that they are compared with.

    Returns:
        Booleans (...): whether the mean difference is negative by more than ERRORS standard errors.
    """
    d = returns - others
    return np.asarray(d.mean(axis=-1) < -ERRORS * d.std(axis=-1, ddof=1) / np.sqrt(d.shape[-1]))


def plays_well(returns: Array) -> Array:
    """Select the policies that are not clearly worse than the median one.

    The median policy is honest, or as good as an honest one, as long as fewer than half of the clients lie.

    Args:
        returns: The returns of each policy, (N, E).

    Returns:
        A boolean mask (N,), in which at least half are true.
    """
    middle = np.argsort(returns.mean(axis=1), kind="stable")[len(returns) // 2]
    return ~clearly_worse(returns, returns[middle])


class Play(NamedTuple):
    """How the server plays values in one round."""

    earn: Callable[[Array], Array]
    """Values Q (m, A) at the anchors of the round -> their returns (E,)."""
    last: Array | None = None
    """The returns of the last teacher, (E,); None in the first round."""


class Level(NamedTuple):
    """Replies with which no client has more influence than another: all that a client decides is a direction."""

    V: Array
    """The value of each state, the mean over actions, (m, 1): the median of the clients."""
    A: Array
    """The advantages of each reply, (N, m, A), none of them longer than `length`."""
    length: float
    """The median length of the advantages, and the length of those of every teacher."""

    @classmethod
    def of(cls, Q: Array) -> Level:
        """Level the values Q (N, m, A) of N clients. Those who have learned nothing, Q = 0, have no say."""
        learned = Q.any(axis=(1, 2))
        V = Q.mean(axis=-1, keepdims=True)
        A = Q - V
        lengths = np.linalg.norm(A.reshape(len(A), -1), axis=1)
        length = float(np.median(lengths[learned])) if learned.any() else 0.0
        shorter = length / np.maximum(lengths, length or 1.0)
        return cls(np.median(V[learned], axis=0) if learned.any() else V[0], A * shorter[:, None, None], length)

    def counting(self, kept: Sequence[int]) -> Array:
        """Return the values (len(kept), m, A) of these replies as they count: their mean is the teacher.

        The advantages of a teacher are as long as the median ones. If they were not, replies that contradict each
        other, or that are close to 0, would leave a teacher that prefers no action but still plays well.
        """
        A = self.A[list(kept)]
        mean = float(np.linalg.norm(A.mean(axis=0)))
        cancelled = mean <= ROUNDING * self.length
        return self.V + (A if cancelled else A * (self.length / mean))

    def teacher(self, kept: Sequence[int]) -> Array:
        """Return the teacher (m, A) that these replies give."""
        return np.asarray(self.counting(kept).mean(axis=0))


def play_off(level: Level, play: Play) -> list[int]:
    """Select replies that play well themselves and whose teacher plays well.

    A reply that plays clearly worse than the median one is left out. If the teacher of the others plays clearly worse
    than the best that the server has in hand, a reply or the last teacher, liars that play well themselves may have
    spoiled it. Then the replies without which it plays best are left out, one after the other, until it does not.

    Args:
        level: The replies, at least one.
        play: How the server plays.

    Returns:
        The places of the replies that count, at least one.
    """
    earned = [play.earn(level.V + A) for A in level.A]
    best = max([*earned, *([] if play.last is None else [play.last])], key=lambda returns: float(returns.mean()))
    kept = [int(i) for i in np.flatnonzero(plays_well(np.stack(earned)))]
    if len(kept) > 1 and clearly_worse(play.earn(level.teacher(kept)), best):
        without = [play.earn(level.teacher([j for j in kept if j != i])).mean() for i in kept]
        spoilers = np.argsort(np.negative(without), kind="stable")
        for left in range(1, len(kept)):
            rest = [i for place, i in enumerate(kept) if place not in spoilers[:left]]
            if left == len(kept) - 1 or not clearly_worse(play.earn(level.teacher(rest)), best):
                return rest
    return kept


class Stage:
    """The server's copy of the public environment. The same values in the same round always earn the same returns."""

    def __init__(self, c: Config, public: Public) -> None:
        """Make a stage from the settings of a run and what its clients share."""
        self.config, self.public = c, public
        settings = OnlineSettings(lam=c.lam, compile="overwrite")
        self._student = OnlineQHD(server_encoder(c, public), public.actions, settings, np.random.default_rng(0))
        self._env = make_env(c.env, repeat=c.action_repeat)
        self._played: dict[tuple[bytes, bytes], Played] = {}
        self._round = -1

    def play(self, anchors: Array, Q: Array, k: int) -> Played:
        """Play the greedy policy of values Q (m, A) at anchors (m, n) in round k.

        Results are kept until the next round, because simulated liars ask for them as well.
        """
        if k != self._round:
            self._played, self._round = {}, k
        key = (anchors.tobytes(), Q.tobytes())
        if key not in self._played:
            self._played[key] = self._play(anchors, Q, k)
        return self._played[key]

    def _play(self, anchors: Array, Q: Array, k: int) -> Played:
        env, scaler = self._env, self.public.scaler
        self._student.fit_anchors(anchors, Q)
        model = self._student.model()
        twin = twin_for(model, env, scaler)
        returns, steps = np.zeros(EPISODES), 0
        for episode in range(EPISODES):
            seed = rng.env_seed(self.config.seed, rng.PUBLIC, "played", k * EPISODES + episode)
            state, _ = env.reset(seed=seed)
            if twin is not None:
                returns[episode], length = greedy_in_kernel(model, twin, scaler(state), LONGEST)
                steps += length
                continue
            for _ in range(LONGEST):
                state, reward, terminated, truncated, _ = env.step(int(model.act(scaler(state)[None])[0]))
                returns[episode] += float(reward)
                steps += 1
                if terminated or truncated:
                    break
        return Played(returns, steps)
