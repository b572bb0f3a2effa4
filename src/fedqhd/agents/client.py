"""A client: one agent and its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from fedqhd.agents.loops import SPLIT, play_in_kernel, play_in_python, twin_for, warm_up
from fedqhd.agents.ongoing import Ongoing, played_again
from fedqhd.core import rng
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array, Episode, Federation, Payload, Quota, Reply, weight_due
from fedqhd.core.snapshot import Stateful
from fedqhd.envs.adapt import Env
from fedqhd.envs.scaling import StateScaler

Measure = Callable[["LocalClient", Trial], Array]
"""Plays the greedy episodes of a trial and returns their returns, (environments of the client, episodes)."""


def ignore(episode: Episode) -> None:
    """Do nothing with the record of an episode."""


def measure_nothing(client: LocalClient, trial: Trial) -> Array:
    """Play no episodes; the default for engines whose clients are not evaluated during training."""
    return np.zeros((len(client.envs), 0))


class LocalClient(Stateful):
    """Trains its agent for some episodes or steps each round and then reports. Its environments and states remain with
    it.

    A client has one environment. The pooled oracle is a single client with the environments of all clients: it plays
    each episode in every environment before the next episode begins. A round of steps ends with the first action after
    which it has had its steps, and the next round goes on with the episode that was open then.

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
    """The environments have no state to save, because every episode reseeds them. Of an open episode, the actions are
    saved, with which it is played again."""
    OPTIONAL = ("_open", "_actions")

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
        self._turn = 0
        """The environment whose turn it is."""
        self._ongoing: Ongoing | None = None
        self._open: Array | None = None
        """For snapshots: whose turn it is and the exploration rate of the open episode; None before the first turn."""
        self._actions: Array | None = None
        """For snapshots: the actions of the open episode."""
        self.twins = [twin_for(agent, env, scaler, loop) for env in self.envs]

    @property
    def loop(self) -> str:
        """Where its episodes are played, "compiled" or "python"."""
        return "compiled" if all(self.twins) else "python"

    @property
    def open_steps(self) -> int:
        """The steps of the episode that it is in the middle of; 0 between episodes."""
        return self._ongoing.length if self._ongoing else 0

    def warm_up(self) -> None:
        """Compile the kernel that plays its episodes, or load it from its cache."""
        for twin in self.twins:
            if twin is not None:
                warm_up(self.agent, twin, self.gamma)

    def round(
        self,
        federation: Federation,
        teacher: Payload | None,
        quota: Quota,
        on_episode: Callable[[Episode], None] = ignore,
    ) -> Reply:
        """Install a teacher, train and report.

        Args:
            federation: What is exchanged.
            teacher: The teacher to install, or None in the first round.
            quota: The episodes or steps to play in each environment.
            on_episode: Called with the record of each episode.

        Returns:
            The reply to the server.
        """
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        began = perf_counter()
        if teacher is not None:
            federation.install(self, teacher)
        installed, before = perf_counter(), self.open_steps
        played = self.play(quota, on_episode)
        trained = perf_counter()
        payload = federation.report(self, teacher)
        self.seconds["federation"] = perf_counter() - trained + installed - began
        steps = sum(e.length for e in played) + self.open_steps - before
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

    def play(self, quota: Quota, on_episode: Callable[[Episode], None] = ignore) -> tuple[Episode, ...]:
        """Train for some episodes or steps, and return the records of the episodes that ended.

        `on_episode` is called after each of them. An episode that is still open goes on when this is called again.
        """
        played: list[Episode] = []
        due, left = len(self.envs) * quota.episodes, len(self.envs) * quota.steps
        while len(played) < due or left > 0:
            before = self.open_steps
            episode = self._go_on(before + left if quota.steps else None)
            left -= (episode.length if episode else self.open_steps) - before
            if episode:
                played.append(episode)
                on_episode(episode)
                self._next_turn()
        return tuple(played)

    def _next_turn(self) -> None:
        """Let the next environment play. After the last one, the episode is over for the agent."""
        self._turn = (self._turn + 1) % len(self.envs)
        if self._turn == 0:
            start = perf_counter()
            self.agent.end_episode()
            self.seconds["learning"] += perf_counter() - start
            self.episodes += 1

    def _go_on(self, until: int | None) -> Episode | None:
        """Begin an episode, or go on with the open one, and return its record if it ends.

        `until` is the length at which it is interrupted; None plays to its end.
        """
        site, env, twin = self.index + self._turn, self.envs[self._turn], self.twins[self._turn]
        visit = self._sample if len(self._visited) else None
        try:
            episode = self._ongoing or self._begun(site, env)
            if twin is None:
                ended, seconds = play_in_python(self.agent, env, episode, self.scaler, self.gamma, visit, until)
            else:
                ended, seconds = play_in_kernel(self.agent, twin, episode, self.gamma, visit, until)
        except FedQHDError as error:
            raise FedQHDError(f"client {site}, episode {self.episodes}: {error}") from error
        for name, spent in seconds.items():
            self.seconds[name] += spent
        self._ongoing = None if ended else episode
        # The agent of a user may count in numbers of numpy, which files cannot hold.
        return Episode(site, self.episodes, episode.ret, episode.length, float(episode.epsilon)) if ended else None

    def _seed(self, site: int) -> int:
        """Return the seed of the present episode in the environment of client `site`."""
        return rng.env_seed(self.seed, site, "train", self.episodes)

    def _begun(self, site: int, env: Env) -> Ongoing:
        began, epsilon = perf_counter(), self.agent.epsilon
        state, _ = env.reset(seed=self._seed(site))
        self.seconds["environment"] += perf_counter() - began
        return Ongoing(self.scaler(state), epsilon)

    def state(self) -> Payload:
        episode, self._open, self._actions = self._ongoing, None, None
        if episode or self._turn:
            self._open = np.array([self._turn, episode.epsilon if episode else 0.0])
            self._actions = np.array(episode.actions if episode else [])
        return super().state()

    def restored(self) -> None:
        """Play the open episode again, if there is one."""
        self._turn, self._ongoing = 0, None
        if self._open is None or self._actions is None:
            return
        turn, epsilon = self._open.tolist()
        if turn not in range(len(self.envs)):
            raise ValueError(f"it is the turn of environment {turn}, of {len(self.envs)}")
        self._turn = int(turn)
        if len(self._actions):
            seed = self._seed(self.index + self._turn)
            self._ongoing = played_again(self.envs[self._turn], seed, self.scaler, epsilon, self._actions)

    def _sample(self, s: Array) -> None:
        """Add a state by reservoir sampling, which keeps each state visited so far with the same probability."""
        slot = self._met if self._met < len(self._visited) else int(self._rng.integers(self._met + 1))
        if slot < len(self._visited):
            self._visited[slot] = s
        self._met += 1

    def visited(self, k: int) -> Array:
        """Return up to k of the scaled states that the client keeps, (k, n)."""
        return self._visited[: min(k, self._met)].copy()
