"""A client: one agent and its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from fedqhd.agents.loops import SPLIT, play_in_kernel, play_in_python, twin_for, warm_up
from fedqhd.core import rng
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Episode, Federation, Payload, Reply, weight_due
from fedqhd.core.snapshot import Stateful
from fedqhd.envs.adapt import Env
from fedqhd.envs.compiled import Twin
from fedqhd.envs.scaling import StateScaler

Measure = Callable[["LocalClient", Trial], Array]
"""Plays the greedy episodes of a trial and returns their returns, (environments of the client, episodes)."""


def ignore(episode: Episode) -> None:
    """Do nothing with the record of an episode."""


def measure_nothing(client: LocalClient, trial: Trial) -> Array:
    """Play no episodes; the default for engines whose clients are not evaluated during training."""
    return np.zeros((len(client.envs), 0))


class LocalClient(Stateful):
    """Trains its agent for some episodes each round and then reports. Its environments and states remain with it.

    A client has one environment. The pooled oracle is a single client with the environments of all clients: it plays
    each episode in every environment before the next episode begins.

    Args:
        index: The number of the client; a pooled oracle has 0.
        agent: The agent.
        envs: The environments, usually one.
        scaler: The scaling of states.
        gamma: The discount factor.
        seed: The seed of the run.
        weight: Its share in the federation; None means its number of steps in the round.
        keep_states: How many visited states it keeps for `visited`.
        loop: "python" or "compiled" for where episodes are played; "auto" prefers a kernel where there is one.

    Raises:
        NotCompiled: If loop is "compiled" and no kernel can play its episodes.
    """

    STATE = ("agent", "episodes", "_visited", "_met", "_rng")
    """The environments have no state to save, because every episode reseeds them."""

    def __init__(
        self,
        index: int,
        agent: Agent,
        envs: Sequence[Env],
        scaler: StateScaler,
        *,
        gamma: float,
        seed: int,
        weight: float | None = 1.0,
        keep_states: int = 0,
        loop: str = "auto",
    ) -> None:
        self.index = index
        self.agent = agent
        self.envs = list(envs)
        self.scaler = scaler
        self.gamma = gamma
        self.seed = seed
        self.weight = weight
        self.episodes = 0
        self.before: Payload = {}
        self.seconds = dict.fromkeys(SPLIT, 0.0)
        self._visited = np.zeros((keep_states, len(scaler.shift)), np.float32)
        self._met = 0
        self._rng = rng.generator(seed, index, "visited")
        self.twins = [twin_for(agent, env, scaler, loop) for env in self.envs]

    @property
    def loop(self) -> str:
        """Where its episodes are played, "compiled" or "python"."""
        return "compiled" if all(self.twins) else "python"

    def warm_up(self) -> None:
        """Compile the kernel that plays its episodes, or load it from its cache."""
        for twin in self.twins:
            if twin is not None:
                warm_up(self.agent, twin, self.gamma)

    def round(
        self,
        federation: Federation,
        teacher: Payload | None,
        episodes: int,
        on_episode: Callable[[Episode], None] = ignore,
    ) -> Reply:
        """Install a teacher, train and report.

        Args:
            federation: What is exchanged.
            teacher: The teacher to install, or None in the first round.
            episodes: Number of episodes to play.
            on_episode: Called with the record of each episode.

        Returns:
            The reply to the server.
        """
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

    def trial(self, federation: Federation, teacher: Payload, measure: Measure, trial: Trial) -> Array:
        """Return the greedy returns that the client would have if training ended with this teacher.

        Afterwards the client is as it was before.
        """
        before = self.state()
        federation.install(self, teacher)
        returns = measure(self, trial)
        self.restore(before)
        return returns

    def play(self, episodes: int, on_episode: Callable[[Episode], None] = ignore) -> tuple[Episode, ...]:
        """Train for some episodes, call `on_episode` after each of them, and return their records."""
        played = []
        for _ in range(episodes):
            for site, (env, twin) in enumerate(zip(self.envs, self.twins, strict=True), start=self.index):
                try:
                    played.append(self._episode(site, env, twin))
                except FedQHDError as error:
                    raise FedQHDError(f"client {site}, episode {self.episodes}: {error}") from error
                on_episode(played[-1])
            start = perf_counter()
            self.agent.end_episode()
            self.seconds["learning"] += perf_counter() - start
            self.episodes += 1
        return tuple(played)

    def _episode(self, site: int, env: Env, twin: Twin | None) -> Episode:
        began, epsilon = perf_counter(), self.agent.epsilon
        state, _ = env.reset(seed=rng.env_seed(self.seed, site, "train", self.episodes))
        self.seconds["environment"] += perf_counter() - began
        visit = self._sample if len(self._visited) else None
        if twin is None:
            played = play_in_python(self.agent, env, state, self.scaler, self.gamma, visit)
        else:
            played = play_in_kernel(self.agent, twin, state, self.scaler, self.gamma, visit)
        for name, spent in played.seconds.items():
            self.seconds[name] += spent
        # The agent of a user may count in numbers of numpy, which files cannot hold.
        return Episode(site, self.episodes, played.ret, played.length, float(epsilon))

    def _sample(self, s: Array) -> None:
        """Add a state by reservoir sampling, which keeps each state visited so far with the same probability."""
        slot = self._met if self._met < len(self._visited) else int(self._rng.integers(self._met + 1))
        if slot < len(self._visited):
            self._visited[slot] = s
        self._met += 1

    def visited(self, k: int) -> Array:
        """Return up to k of the scaled states that the client keeps, (k, n)."""
        return self._visited[: min(k, self._met)].copy()
