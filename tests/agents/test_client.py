"""The loop of a client between its environment and its agent, in real environments, as an agent that learns nothing
sees it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from fedqhd.agents.client import LocalClient
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.envs.make import make_env
from fedqhd.envs.scaling import StateScaler
from worlds import CORRIDOR

GAMMA = 0.9


class Witness:
    """Plays given actions and keeps what it is shown."""

    def __init__(self, *actions):
        self.actions, self.seen, self.ended, self.epsilon = actions, [], [], 1.0

    def act(self, s):
        self.asked = s
        return self.actions[len(self.seen) % len(self.actions)]

    def observe(self, t):
        assert np.array_equal(t.s, self.asked)
        self.seen.append(t)

    def end_episode(self):
        self.ended.append(len(self.seen))
        self.epsilon /= 2


def scaler_of(n):
    return StateScaler(*(np.full(n, value, np.float32) for value in (0.25, 2.0, -50.0, 50.0)))


def witnessed(env, *actions, episodes=1, repeat=1, index=0, **options):
    envs = [env if isinstance(env, gymnasium.Env) else make_env(env, repeat=repeat)]
    n = envs[0].observation_space.shape[0]
    client = LocalClient(index, Witness(*actions), envs, scaler_of(n), gamma=GAMMA, seed=3, **options)
    return client, client.play(Quota(episodes))


def test_an_episode_that_is_cut_off_bootstraps():
    """MountainCar without a push never arrives: after 200 steps the episode is truncated, and the car drives on."""
    client, (episode,) = witnessed("MountainCar-v0", 1)
    assert episode.length == len(client.agent.seen) == 200
    assert [t.discount for t in client.agent.seen] == [GAMMA] * 200


def test_an_episode_that_terminates_does_not():
    """Whoever pushes CartPole to one side falls after some ten steps, and nothing comes after that."""
    client, (episode,) = witnessed("CartPole-v1", 1)
    *before, last = client.agent.seen
    assert episode.length < 20
    assert last.discount == 0.0
    assert {t.discount for t in before} == {GAMMA}


def test_what_an_agent_sees_is_what_the_environment_shows():
    client, (episode,) = witnessed("CartPole-v1", 0, 1)
    env, scaler = gymnasium.make("CartPole-v1"), scaler_of(4)
    state, _ = env.reset(seed=rng.env_seed(3, 0, "train", 0))
    total = 0.0
    for k, t in enumerate(client.agent.seen):
        assert np.array_equal(t.s, scaler(state))
        assert t.a == k % 2
        state, reward, terminated, _, _ = env.step(t.a)
        total += reward
        assert (t.r, t.discount == 0.0) == (reward, terminated)
        assert np.array_equal(t.s_next, scaler(state))
    assert terminated
    assert (episode.client, episode.episode, episode.ret, episode.length) == (0, 0, total, len(client.agent.seen))


def test_a_repeated_action_is_one_transition_of_several_steps():
    client, (episode,) = witnessed("MountainCar-v0", 1, repeat=4)
    assert len(client.agent.seen) == 50
    assert episode.length == 200
    assert episode.ret == -200.0
    assert {t.r for t in client.agent.seen} == {-4.0}


def test_episodes_are_numbered_seeded_and_ended_one_by_one():
    client, episodes = witnessed(CORRIDOR, 1, episodes=3)
    assert [e.episode for e in episodes] == [0, 1, 2]
    assert [e.epsilon for e in episodes] == [1.0, 0.5, 0.25]  # that of its beginning, before it decays
    assert client.agent.ended == np.cumsum([e.length for e in episodes]).tolist()
    assert client.episodes == 3
    first = [client.agent.seen[k].s[0] for k in (0, *client.agent.ended[:2])]
    assert len(set(first)) == 3
    assert client.play(Quota(1))[0].episode == 3
    # Another client has other episodes; the same one has the same again.
    other, _ = witnessed(CORRIDOR, 1, index=1)
    again, _ = witnessed(CORRIDOR, 1)
    assert other.agent.seen[0].s[0] != first[0] == again.agent.seen[0].s[0]


class Broken(gymnasium.Env):
    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float("nan") if self.steps == 3 else 0.0, False, False, {}


def test_a_reward_that_is_no_number_is_said_with_its_place():
    sentence = r"client 2, episode 0: step 2 of the environment returned the reward nan"
    with pytest.raises(FedQHDError, match=sentence):
        witnessed(Broken(), 0, index=2)


def test_the_states_that_are_kept_are_a_fair_sample_of_all():
    """Of 200 states, 20 are kept: late ones as often as early ones, over 200 draws."""
    early = []
    for seed in range(200):
        client = LocalClient(0, Witness(1), [], scaler_of(1), gamma=GAMMA, seed=seed, keep_states=20)
        for k in range(200):
            client._sample(np.array([k], np.float32))
        kept = client.visited(50)
        assert len(np.unique(kept)) == 20
        early.append((kept < 100).mean())
    # The share of the first half has a standard deviation of 0.11 in a draw, 0.008 in the mean of 200: four of these.
    assert np.mean(early) == pytest.approx(0.5, abs=0.032)
    # The k-th state (from 0) replaces a kept one with probability K / (k + 1): by hand, with the same draws.
    client = LocalClient(0, Witness(1), [], scaler_of(1), gamma=GAMMA, seed=7, keep_states=2)
    draw, due = rng.generator(7, 0, "visited"), [0.0, 1.0]
    for k in range(9):
        client._sample(np.array([k], np.float32))
        if k >= 2 and (slot := draw.integers(k + 1)) < 2:
            due[slot] = float(k)
    assert client.visited(2)[:, 0].tolist() == due
    client, _ = witnessed("CartPole-v1", 1, keep_states=5)
    assert client.visited(3).shape == (3, 4)
    assert {tuple(s) for s in client.visited(5)} <= {tuple(t.s) for t in client.agent.seen}
