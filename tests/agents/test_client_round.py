"""A client's round by hand: what it installs, plays and reports, how long each part took, and what a trial leaves."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from test_client import GAMMA, Broken, Witness, scaler_of, witnessed

from conftest import by_hand
from fedqhd.agents import OnlineQHD, ReplayQHD, loops
from fedqhd.agents import client as module
from fedqhd.agents.client import SPLIT, LocalClient, measure_nothing
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota, Reply
from fedqhd.encoders import RandomFourier
from fedqhd.envs.make import make_env
from fedqhd.federation import AnchorCompile
from worlds import CORRIDOR


class Clock:
    """A clock that goes on only when something is said to take time."""

    now = 0.0

    def takes(self, seconds):
        self.now += seconds


class Timed(gymnasium.Env):
    """Two steps; a reset takes 2 s and a step 100 s."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, clock):
        self.clock = clock

    def reset(self, *, seed=None, options=None):
        self.clock.takes(2)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.clock.takes(100)
        self.steps += 1
        return np.zeros(1, np.float32), 0.5, self.steps == 2, False, {}


class Slow(Witness):
    """To act takes 10 s, to observe 1000 s, to end an episode 3 s."""

    def __init__(self, clock):
        super().__init__(1)
        self.clock = clock

    def act(self, s):
        self.clock.takes(10)
        return super().act(s)

    def observe(self, t):
        self.clock.takes(1000)
        super().observe(t)

    def end_episode(self):
        self.clock.takes(3)
        super().end_episode()

    def fingerprint(self):
        return "print"


class Slowly:
    """A federation that keeps what it is asked for: to install takes 5 s, to report 7 s."""

    def __init__(self, clock):
        self.clock, self.asked = clock, []

    def install(self, client, teacher):
        self.clock.takes(5)
        self.asked.append(("install", client, teacher, client.episodes))

    def report(self, client, teacher):
        self.clock.takes(7)
        self.asked.append(("report", client, teacher, client.episodes))
        return {"Q": np.ones(1)}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for user in (module, loops):
        monkeypatch.setattr(user, "perf_counter", lambda: clock.now)
    return clock


def test_a_round_installs_plays_and_reports_and_says_how_long_each_part_took(clock):
    client = LocalClient(3, Slow(clock), [Timed(clock)], scaler_of(1), gamma=GAMMA, seed=1, weight=0.25)
    assert client.seconds == dict.fromkeys(SPLIT, 0.0)
    exchange, told, teacher = Slowly(clock), [], {"Q": np.zeros(1)}
    reply = client.round(exchange, teacher, Quota(2), told.append)
    assert exchange.asked == [("install", client, teacher, 0), ("report", client, teacher, 2)]
    assert [(e.client, e.episode, e.ret, e.length, e.epsilon) for e in told] == [(3, 0, 1, 2, 1), (3, 1, 1, 2, 0.5)]
    # Two episodes of two steps: 2 + 2 * 100 s in the environment, 2 * 10 s for actions, 2 * 1000 + 3 s for learning.
    seconds = {"environment": 404.0, "acting": 40.0, "learning": 4006.0, "federation": 12.0, "episodes": 0.0}
    assert reply == Reply(3, {"Q": np.ones(1)}, 0.25, 4, tuple(told), "print", seconds)
    again = client.round(exchange, teacher, Quota(2))  # the clock of a round begins at 0
    assert again.seconds == seconds
    assert [e.episode for e in again.episodes] == [2, 3]
    first = client.round(exchange, None, Quota(1))
    assert exchange.asked[-1] == ("report", client, None, 5)
    assert len(exchange.asked) == 5  # nothing was installed
    assert first.seconds["federation"] == 7


def test_a_client_weighs_its_share_or_its_steps(clock):
    weights = [
        LocalClient(0, Slow(clock), [Timed(clock)], scaler_of(1), gamma=GAMMA, seed=1, **weight)
        .round(Slowly(clock), None, Quota(3)).weight
        for weight in ({}, {"weight": None}, {"weight": 2})
    ]  # fmt: skip
    assert weights == [1.0, 6.0, 2.0]
    assert {type(w) for w in weights} == {float}


def test_a_pooled_client_plays_each_episode_everywhere_before_the_next(clock):
    client = LocalClient(3, Slow(clock), [Timed(clock), Timed(clock)], scaler_of(1), gamma=GAMMA, seed=1)
    told = []
    played = client.play(Quota(2), told.append)
    assert [(e.client, e.episode) for e in played] == [(3, 0), (4, 0), (3, 1), (4, 1)]
    assert played == tuple(told)
    assert client.agent.ended == [4, 8]
    assert measure_nothing(client, Trial(5, 0, False)).shape == (2, 0)
    assert LocalClient(0, Witness(1), [], scaler_of(1), gamma=GAMMA, seed=1).play(Quota(0)) == ()


def test_the_place_of_an_error_is_that_of_the_environment_and_the_episode(clock):
    client = LocalClient(3, Slow(clock), [Timed(clock), Broken()], scaler_of(1), gamma=GAMMA, seed=1)
    client.episodes = 6
    with pytest.raises(
        FedQHDError,
        match=r"^client 4, episode 6: step 2 of the environment returned the reward nan: it must be finite$",
    ):
        client.play(Quota(1))


def test_no_states_are_kept_unless_they_are_asked_for():
    client, _ = witnessed("CartPole-v1", 1)
    assert client.visited(9).shape == (0, 4)
    assert client.visited(9).dtype == np.float32
    kept, _ = witnessed("CartPole-v1", 1, keep_states=3)
    assert int(client.state()["met"]) == 0
    assert int(kept.state()["met"]) == len(kept.agent.seen)
    assert kept.visited(2).shape == (2, 4)
    few, _ = witnessed("CartPole-v1", 1, keep_states=500)
    np.testing.assert_array_equal(few.visited(500), [t.s for t in few.agent.seen])  # of these, all
    few.visited(1)[:] = 9  # a copy
    assert few.visited(1).max() < 9


def learner(kind, name, env="CartPole-v1", **options):
    envs = [make_env(env)]
    n = envs[0].observation_space.shape[0]
    encoder = RandomFourier.sample(n, 40, 1.0, np.random.default_rng(0))
    agent = kind(encoder, 2, by_hand(name), np.random.default_rng(1))
    return LocalClient(2, agent, envs, scaler_of(n), gamma=GAMMA, seed=3, **options)


def test_a_kernel_and_python_play_the_same_episodes_and_keep_the_same_states():
    clients = [learner(OnlineQHD, "online", loop=loop, keep_states=7) for loop in ("auto", "compiled", "python")]
    assert [c.loop for c in clients] == ["compiled", "compiled", "python"]
    kernel, _, python = [c.play(Quota(4)) for c in clients]
    assert kernel == python
    for name, value in clients[0].state().items():
        np.testing.assert_array_equal(value, clients[2].state()[name], err_msg=name)
    assert clients[0].seconds["episodes"] > 0 == clients[2].seconds["episodes"]
    assert clients[0].seconds["acting"] == 0 < clients[2].seconds["acting"]
    assert min(*clients[0].seconds.values(), *clients[2].seconds.values()) == 0
    plain = learner(OnlineQHD, "online")  # keeps no states
    assert plain.play(Quota(4)) == kernel
    assert int(plain.state()["met"]) == 0
    mixed = LocalClient(0, Witness(1), [make_env("CartPole-v1")], scaler_of(4), gamma=GAMMA, seed=3)
    assert mixed.loop == "python"  # no kernel knows this agent
    mixed.twins = [object(), None]
    assert mixed.loop == "python"


def test_to_warm_up_plays_nothing_and_uses_the_kernel_of_the_episodes(monkeypatch):
    client, python = learner(OnlineQHD, "online"), learner(OnlineQHD, "online", loop="python")
    before = client.state()
    client.warm_up()
    for name, value in client.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    warmed = []
    monkeypatch.setattr(module, "warm_up", lambda *arguments: warmed.append(arguments))
    client.warm_up()
    python.warm_up()
    assert warmed == [(client.agent, client.twins[0], GAMMA)]


def test_after_a_trial_a_client_is_as_it_was():
    client = learner(ReplayQHD, "replay", CORRIDOR, keep_states=3)
    client.play(Quota(2))
    before, agent = client.state(), client.agent
    anchors = np.linspace(-1, 1, 7, dtype=np.float32)[:, None]
    exchange, teacher, asked = AnchorCompile(anchors), {"Q": np.outer(anchors[:, 0], [1.0, -1.0])}, []

    def measure(measured, trial):
        asked.append((measured, trial))
        assert np.abs(agent.q(anchors) - teacher["Q"]).max() < 0.1
        measured.play(Quota(1))
        return np.array([[4.0, 5.0]])

    trial = Trial(2, 0, False)
    assert client.trial(exchange, teacher, measure, trial).tolist() == [[4, 5]]
    assert asked == [(client, trial)]
    for name, value in client.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert np.abs(agent.q(anchors) - teacher["Q"]).max() > 0.1  # negative control
