"""Judging replies by playing them: the server compiles each into features of its own and plays it in the public
environment. A liar may look like an honest client in every number that it sends, but not in what its policy earns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedqhd.agents import OnlineQHD, OnlineSettings
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.protocols import Array, Reply
from fedqhd.envs.make import make_env
from fedqhd.envs.public import Public
from fedqhd.federation.follow import server_encoder

EPISODES = 10
"""Greedy episodes per policy. All policies of a round begin in the same states, so that luck cancels out."""
LONGEST = 1000
"""Steps after which an episode is cut off, so that a policy that never ends one cannot hold up the server."""
ERRORS = 2.0
"""How many standard errors below another policy a policy is clearly worse."""


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
    search: bool = True
    """Whether to search for the replies that spoil a teacher; if not, none of its replies counts."""


def play_off(replies: Sequence[Reply], play: Play, combine: Callable[[Sequence[Reply], str], Array]) -> list[bool]:
    """Select replies that play well themselves and whose teacher plays well.

    A reply that plays clearly worse than the median one is left out. Then, as long as the teacher plays clearly worse
    than the best that the server has in hand, a reply or the last teacher, the reply without which it plays best is
    left out: liars that play well themselves may still spoil the mean.

    Args:
        replies: The replies, at least one.
        play: How the server plays.
        combine: Makes the teacher's values of replies.

    Returns:
        For each reply, whether it counts; at least one does if the server searches.
    """
    earned = [play.earn(r.payload["Q"]) for r in replies]
    best = max([*earned, *([] if play.last is None else [play.last])], key=lambda returns: float(returns.mean()))
    kept = [int(i) for i in np.flatnonzero(plays_well(np.stack(earned)))]
    teacher = play.earn(combine([replies[i] for i in kept], "Q"))
    if not play.search and clearly_worse(teacher, best):
        return [False] * len(replies)
    while len(kept) > 1 and clearly_worse(teacher, best):
        without = [play.earn(combine([replies[j] for j in kept if j != i], "Q")) for i in kept]
        chosen = int(np.argmax([returns.mean() for returns in without]))
        teacher = without[chosen]
        kept.pop(chosen)
    return [i in kept for i in range(len(replies))]


class Stage:
    """The server's copy of the public environment. The same values in the same round always earn the same returns."""

    def __init__(self, c: Config, public: Public) -> None:
        """Make a stage from the settings of a run and what its clients share."""
        self.config, self.public = c, public
        self.encoder = server_encoder(c, public)
        self.settings = OnlineSettings(lam=c.lam, compile="overwrite", epsilon_start=0.0)
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
        c, scaler = self.config, self.public.scaler
        ties = np.random.default_rng(rng.env_seed(c.seed, rng.PUBLIC, "ties", k))
        student = OnlineQHD(self.encoder, self.public.actions, self.settings, ties)
        student.fit_anchors(anchors, Q)
        env = make_env(c.env, repeat=c.action_repeat)
        returns, steps = np.zeros(EPISODES), 0
        for episode in range(EPISODES):
            state, _ = env.reset(seed=rng.env_seed(c.seed, rng.PUBLIC, "played", k * EPISODES + episode))
            for _ in range(LONGEST):
                state, reward, terminated, truncated, _ = env.step(student.act(scaler(state)))
                returns[episode] += float(reward)
                steps += 1
                if terminated or truncated:
                    break
        env.close()
        return Played(returns, steps)
