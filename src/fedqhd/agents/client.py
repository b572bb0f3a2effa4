"""A client: one agent in one environment, at its own site."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter

import gymnasium
import numpy as np

from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Episode, Federation, Payload, Reply, Transition, weight_due
from fedqhd.core.snapshot import Stateful
from fedqhd.envs.scaling import StateScaler

SPLIT = ("environment", "acting", "learning", "federation")
"""What a client spends its time on."""


def ignore(episode: Episode) -> None:
    """A listener that does nothing with an episode."""


class LocalClient(Stateful):
    """Plays K episodes with its agent, then reports. Its environments and its states stay here.

    A client has one environment. The pooled oracle is a client that has those of all: one agent, one learner, and
    each episode is played in every environment before the next begins.
    """

    STATE = ("agent", "episodes", "_visited", "_met", "_rng")
    """The environments are rebuilt, since every episode reseeds them."""

    def __init__(
        self,
        index: int,
        agent: Agent,
        envs: Sequence[gymnasium.Env[Array, np.int64]],
        scaler: StateScaler,
        *,
        gamma: float,
        seed: int,
        weight: float | None = 1.0,
        keep_states: int = 0,
    ) -> None:
        self.index = index
        self.agent = agent
        self.envs = list(envs)
        self.scaler = scaler
        self.gamma = gamma
        self.seed = seed
        self.weight = weight
        """Its share in the federation; None: the steps it took in the round."""
        self.episodes = 0
        self.seconds = dict.fromkeys(SPLIT, 0.0)
        self._visited = np.zeros((keep_states, len(scaler.shift)), np.float32)
        self._met = 0
        self._rng = rng.generator(seed, index, "visited")

    def round(
        self,
        federation: Federation,
        teacher: Payload | None,
        episodes: int,
        on_episode: Callable[[Episode], None] = ignore,
    ) -> Reply:
        """Install, train, report: one exchange."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        began = perf_counter()
        if teacher is not None:
            federation.install(self, teacher)
        installed = perf_counter()
        played = self.play(episodes, on_episode)
        trained = perf_counter()
        payload = federation.report(self, teacher)
        self.seconds["federation"] = perf_counter() - trained + installed - began
        steps = sum(e.length for e in played)
        weight = float(weight_due(self.weight, steps))
        return Reply(self.index, payload, weight, steps, played, self.agent.fingerprint(), self.seconds)

    def play(self, episodes: int, on_episode: Callable[[Episode], None] = ignore) -> tuple[Episode, ...]:
        played = []
        for _ in range(episodes):
            for site, env in enumerate(self.envs, start=self.index):
                try:
                    played.append(self._episode(site, env))
                except FedQHDError as error:
                    raise FedQHDError(f"client {site}, episode {self.episodes}: {error}") from error
                on_episode(played[-1])
            start = perf_counter()
            self.agent.end_episode()
            self.seconds["learning"] += perf_counter() - start
            self.episodes += 1
        return tuple(played)

    def _episode(self, site: int, env: gymnasium.Env[Array, np.int64]) -> Episode:
        agent, scaler, gamma = self.agent, self.scaler, self.gamma
        environment = acting = learning = 0.0
        epsilon, total, length, done = agent.epsilon, 0.0, 0, False
        clock = perf_counter()
        state, _ = env.reset(seed=rng.env_seed(self.seed, site, "train", self.episodes))
        s = scaler(state)
        environment += perf_counter() - clock
        while not done:
            start = perf_counter()
            a = agent.act(s)
            acted = perf_counter()
            state, reward, terminated, truncated, info = env.step(a)  # type: ignore[arg-type]
            r = float(reward)
            s_next = scaler(state)
            stepped = perf_counter()
            if not math.isfinite(r):
                raise FedQHDError(f"step {length} of the environment gave the reward {r}: it must be finite")
            # Termination ends the future; truncation only ends our watching it, so it bootstraps.
            agent.observe(Transition(s, a, r, 0.0 if terminated else gamma, s_next))
            if len(self._visited):
                self._sample(s)
            learned = perf_counter()
            acting += acted - start
            environment += stepped - acted
            learning += learned - stepped
            total += r
            length += info.get("env_steps", 1)
            done = terminated or truncated
            s = s_next
        for name, spent in zip(SPLIT, (environment, acting, learning), strict=False):
            self.seconds[name] += spent
        return Episode(site, self.episodes, total, length, epsilon)

    def _sample(self, s: Array) -> None:
        """Reservoir sampling: every state met so far has the same chance to be among those kept."""
        slot = self._met if self._met < len(self._visited) else int(self._rng.integers(self._met + 1))
        if slot < len(self._visited):
            self._visited[slot] = s
        self._met += 1

    def visited(self, k: int) -> Array:
        return self._visited[: min(k, self._met)].copy()
