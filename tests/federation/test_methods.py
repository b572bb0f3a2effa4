"""Every method: the equalities that define it, negative controls, and that it learns."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from conftest import by_hand, live, tiny
from fedqhd.agents import ReplayQHD
from fedqhd.agents.learners.dqn import DQN, DQNSettings, layers_of
from fedqhd.agents.model import MLP
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.length import planned
from fedqhd.core.protocols import Episode, Reply, Transition
from fedqhd.encoders import RandomFourier
from fedqhd.engines import LocalEngine
from fedqhd.envs.make import make_env
from fedqhd.federation import ParameterAverage, ThroughAnchors, run_rounds
from fedqhd.federation.methods.distilled_feddqn import Distilled
from fedqhd.federation.methods.truncated_fedavg_qhd import Truncated
from fedqhd.runs.build import build
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train
from worlds import CORRIDOR

METHODS = [
    "independent-qhd",
    "truncated-fedavg-qhd",
    "fedavg-dqn",
    "distilled-feddqn",
    "fedqhd",
    "oracle-qhd",
    "oracle-dqn",
]


def agents_after(config):
    clients, world = build(config)
    list(
        run_rounds(
            LocalEngine(clients, world.federation),
            world.federation,
            planned(config),
        )
    )
    return [c.agent for c in clients]


def same_parameters(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.params().values(), b.params().values(), strict=True))


@pytest.mark.parametrize("learner", ["replay", "online", "least-squares"])
def test_truncated_with_a_shared_encoder_is_algorithm_1(tmp_path, learner):
    options = {"setting": "homogeneous", "learner": learner}
    fed = agents_after(tiny(tmp_path, method="fedqhd", **options))
    cut = agents_after(tiny(tmp_path, method="truncated-fedavg-qhd", **options))
    assert all(same_parameters(a, b) for a, b in zip(fed, cut, strict=True))


@pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
def test_one_federated_client_is_an_independent_one(tmp_path, setting):
    one = {"clients": 1, "setting": setting}
    assert same_parameters(*(agents_after(tiny(tmp_path, method=m, **one))[0] for m in ("fedqhd", "independent-qhd")))


@pytest.mark.parametrize("learner", ["replay", "online", "least-squares"])
def test_an_oracle_of_one_environment_is_an_independent_client(tmp_path, learner):
    one = {"clients": 1, "setting": "homogeneous", "learner": learner}
    assert same_parameters(
        *(agents_after(tiny(tmp_path, method=m, **one))[0] for m in ("oracle-qhd", "independent-qhd"))
    )


def test_an_oracle_pools_all_environments(tmp_path):
    """One agent; its memory holds the transitions of every environment, its episodes those of all clients."""
    summary = train(tiny(tmp_path, method="oracle-qhd", clients=3))
    assert summary["agents"] == 1
    assert len(summary["final_return_per_client"]) == len(summary["greedy_return_per_client"]) == 3
    # Every step but those before the first full minibatch is an update of the one learner.
    assert summary["updates"] == summary["env_steps"] - 31
    assert summary["bytes_up_per_round"] == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sorted((r["client"], r["episode"]) for r in rows) == [(c, e) for c in range(3) for e in range(6)]
    assert summary["final_return"] == pytest.approx(np.mean([r["return"] for r in rows]))
    (agent,) = agents_after(tiny(tmp_path, method="oracle-qhd", clients=3))
    assert agent.memory.size == summary["env_steps"]


def test_independent_clients_differ_and_share_nothing(tmp_path):
    a, b = agents_after(tiny(tmp_path, method="independent-qhd", setting="homogeneous"))
    assert a.fingerprint() == b.fingerprint()
    assert not same_parameters(a, b)


def make_dqn(seed=0, hidden=(16, 16), temperature=None, **settings):
    g = np.random.default_rng
    return DQN(2, 3, hidden, DQNSettings(**settings), g(seed), g(seed + 100), temperature)


class Site:
    def __init__(self, index, agent):
        self.index, self.agent = index, agent


def replies(sites, federation):
    return [
        Reply(s.index, federation.report(s, None), 1.0, 1, (Episode(s.index, 0, 0, 1, 1),), s.agent.fingerprint(), {})
        for s in sites
    ]


def exchange(federation, agents):
    sites = [Site(i, a) for i, a in enumerate(agents)]
    _, teacher = federation.aggregate(federation.start(), replies(sites, federation))
    for site in sites:
        federation.install(site, teacher)


S = np.random.default_rng(5).normal(size=(200, 2)).astype(np.float32)


def test_distilling_with_no_steps_leaves_parameters_alone():
    agents = [make_dqn(0, fit_steps=0, temperature=1.0), make_dqn(1, (8,), fit_steps=0, temperature=1.0)]
    before = [a.params() for a in agents]
    exchange(Distilled(S, temperature=1.0), agents)
    for agent, params in zip(agents, before, strict=True):
        for key, value in agent.params().items():
            np.testing.assert_array_equal(value, params[key])


def softmax(q):
    e = np.exp(q - q.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_distilling_approaches_the_mean_choice():
    agents = [
        make_dqn(0, fit_steps=400, temperature=1.0, lr=3e-3),
        make_dqn(1, (8,), fit_steps=400, temperature=1.0, lr=3e-3),
    ]
    for agent in agents:  # opinions to disagree about
        agent.load({k: 4 * v for k, v in agent.params().items()})
    teacher = np.mean([softmax(a.q(S)) for a in agents], axis=0)
    before = [np.abs(softmax(a.q(S)) - teacher).mean() for a in agents]
    exchange(Distilled(S, temperature=1.0), agents)
    after = [np.abs(softmax(a.q(S)) - teacher).mean() for a in agents]
    assert all(x < 0.4 * y for x, y in zip(after, before, strict=True))


def test_fedavg_of_identical_networks_is_the_identity():
    agents = [make_dqn(0) for _ in range(3)]
    before = agents[0].params()
    exchange(ParameterAverage(), agents)
    for agent in agents:
        for key, value in agent.params().items():
            np.testing.assert_array_equal(value, before[key])


def test_averaging_networks_does_not_average_their_values():
    """Negative control: parameter averaging is exact for a linear readout, not for a network."""
    agents = [make_dqn(seed) for seed in range(2)]
    for agent in agents:
        agent.load({k: 4 * v for k, v in agent.params().items()})
    mean = np.mean([a.q(S) for a in agents], axis=0)
    exchange(ParameterAverage(), agents)
    assert np.abs(agents[0].q(S) - mean).mean() > 0.2 * np.abs(mean).mean()


def test_truncation_across_encoders_is_worse_than_doing_nothing(rng):
    """Negative control, on a fixed, learned Q: both clients know the same function; truncated averaging loses it."""
    train_s, held_out = rng.normal(size=(2, 400, 2))

    def truth(s):
        return np.stack([np.sin(2 * s[:, 0]), np.cos(s[:, 1]), s[:, 0] * np.exp(-(s[:, 1] ** 2))], axis=1)

    agents = []
    for D in (150, 300):
        agent = ReplayQHD(RandomFourier.sample(2, D, 1.0, rng), 3, by_hand("replay", lam=1e-3), rng)
        agent.fit_anchors(train_s, truth(train_s))
        agents.append(agent)
    before = [np.abs(a.q(held_out) - truth(held_out)).mean() for a in agents]
    exchange(Truncated(agents[0].params()), agents)
    after = [np.abs(a.q(held_out) - truth(held_out)).mean() for a in agents]
    assert all(x < 0.1 for x in before)
    assert all(y > 3 * x for x, y in zip(before, after, strict=True))


def test_dqn_learns_the_value_of_a_state_with_and_without_its_end():
    for discount, value in ((0.0, 1.0), (0.5, 2.0)):
        agent = make_dqn(lr=3e-3, batch_size=4, update_every=1, learning_starts=4, target_steps=20)
        for _ in range(1500):
            agent.observe(Transition(S[0], 1, 1.0, discount, S[0]))
        assert agent.q(S[:1])[0, 1] == pytest.approx(value, abs=0.05)


def network(layers, x):
    """In PyTorch."""
    for W, b in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = torch.relu(F.linear(x, W, b))
    return F.linear(x, layers[-2], layers[-1])


def td_loss(agent, params, rows):
    memory = agent.memory
    batch = (memory.s, memory.a, memory.r, memory.discount, memory.s_next)
    s, a, r, discount, s_next = (torch.from_numpy(x[rows]) for x in batch)
    target = [torch.from_numpy(x.copy()) for x in layers_of(agent._target, agent.sizes)]
    with torch.no_grad():
        best = network(params, s_next).argmax(1, keepdim=True)
        y = r + discount * network(target, s_next).gather(1, best)[:, 0]
    return F.huber_loss(network(params, s).gather(1, a[:, None])[:, 0], y, delta=agent.settings.huber)


def test_dqn_steps_are_pytorchs():
    """Ten steps: Huber loss (some of its errors beyond the threshold), gradient and Adam."""
    agent = make_dqn(hidden=(16, 8), lr=3e-3, huber=0.5, batch_size=32, update_every=10**6)
    rng = np.random.default_rng(0)
    for s, s_next in pairwise(S):
        agent.observe(Transition(s, int(rng.integers(3)), float(rng.normal()), 0.9, s_next))
    agent._target += rng.normal(size=agent._target.shape).astype(np.float32) / 10
    params = [torch.from_numpy(x.copy()).requires_grad_() for x in agent._layers]
    adam = torch.optim.Adam(params, lr=3e-3)
    draws = np.random.default_rng()
    draws.bit_generator.state = agent._rng.bit_generator.state
    for _ in range(10):
        adam.zero_grad()
        td_loss(agent, params, agent.memory.sample(32, draws)).backward()
        adam.step()
        agent._update()
        for ours, theirs in zip(layers_of(agent._gradient, agent.sizes), params, strict=True):
            np.testing.assert_allclose(ours, theirs.grad.numpy(), atol=2e-6)
        for ours, theirs in zip(agent._layers, params, strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=2e-5)


@pytest.mark.parametrize("loss", ["mse", "kl"])
def test_dqn_distils_along_pytorchs_gradient(loss):
    agent = make_dqn(fit_steps=1, fit_batch=4, temperature={"mse": None, "kl": 0.7}[loss])
    params = [torch.from_numpy(x.copy()).requires_grad_() for x in agent._layers]
    Q = np.random.default_rng(0).normal(size=(4, 3))
    same = np.repeat(S[:1], 4, axis=0)  # whichever rows are drawn, the states are these
    wanted = np.repeat(Q[:1], 4, axis=0)
    agent.fit_anchors(same, wanted)
    q, teacher = network(params, torch.from_numpy(same)), torch.from_numpy(wanted.astype(np.float32))
    if loss == "mse":
        F.mse_loss(q, teacher).backward()
    else:
        F.kl_div(F.log_softmax(q / 0.7, 1), F.softmax(teacher / 0.7, 1), reduction="batchmean").backward()
    for ours, theirs in zip(layers_of(agent._gradient, agent.sizes), params, strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), atol=1e-6)


def test_dqn_loads_its_target_too():
    a, b = make_dqn(0), make_dqn(1)
    a.load(b.params())
    np.testing.assert_array_equal(a.q(S), b.q(S))
    np.testing.assert_array_equal(a._target, a._theta)
    with pytest.raises(FedQHDError, match="do not fit a network of 2x16x16x3"):
        a.load(make_dqn(0, (8,)).params())


def test_dqn_acts_on_the_values_it_reports():
    agent = make_dqn()
    agent.epsilon = 0.0
    assert [agent.act(s) for s in S[:50]] == agent.q(S[:50]).argmax(axis=1).tolist()


def test_an_exploratory_action_is_held():
    agent = make_dqn(hold=4)
    agent.epsilon = 1.0
    actions = np.array([agent.act(s) for s in S]).reshape(-1, 4)
    assert (actions == actions[:, :1]).all()
    assert len(np.unique(actions)) == 3
    agent.act(S[0])
    agent.end_episode()  # an episode does not begin with the last one's push
    agent.epsilon = 0.0
    assert agent.act(S[1]) == agent.q(S[1:2]).argmax()


def test_dqn_state_restores_the_same_future():
    quick = {"batch_size": 8, "update_every": 2, "learning_starts": 8, "target_steps": 7}
    agent, copy = make_dqn(0, **quick), make_dqn(3, **quick)
    live(agent, 60, 1)
    copy.restore(agent.state())
    assert live(agent, 60, 2) == live(copy, 60, 2)
    assert same_parameters(agent, copy)
    assert agent.updates == copy.updates > 20


def test_an_mlp_is_saved_and_played(tmp_path):
    train(tiny(tmp_path, method="fedavg-dqn", learning_starts=20, widths=[16]))
    code = "import sys, fedqhd; fedqhd.load_policy(sys.argv[1]).predict([0.1] * 4); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert isinstance(load_policy(tmp_path).model, MLP)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
def test_every_method_repeats_and_resumes(tmp_path, method, setting):
    options = {"method": method, "setting": setting, "learning_starts": 20, "widths": [16, 24]}
    if method == "fedavg-dqn" and setting == "heterogeneous":
        with pytest.raises(FedQHDError, match="networks of different widths have none in common"):
            tiny(tmp_path, **options)
        return
    a = train(tiny(tmp_path / "a", **options))
    train(tiny(tmp_path / "b", **options))
    assert (tmp_path / "a" / "metrics.jsonl").read_text() == (tmp_path / "b" / "metrics.jsonl").read_text()
    assert a["method"] == method
    if method != "fedqhd":
        assert a["protocol"] != "AnchorCompile"


@pytest.mark.parametrize("env", ["Acrobot-v1", "MountainCar-v0", "LunarLander-v3"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_everywhere(tmp_path, env, method):
    """One episode of each; CartPole is the environment of the other tests."""
    short = {
        "episodes": 1,
        "round_episodes": 1,
        "eval_episodes": 1,
        "learning_starts": 64,
        "update_every": 16,
        "gradient_steps": 1,
    }
    summary = train(tiny(tmp_path, env=env, method=method, setting="homogeneous", widths=[16], **short))
    assert summary["env"] == env
    assert summary["env_steps"] > 0
    assert np.isfinite(summary["greedy_return"])


NINE = {
    "independent-qhd": {},
    "truncated-fedavg-qhd": {"setting": "homogeneous"},
    "fedavg-dqn": {"setting": "homogeneous"},
    "distilled-feddqn": {},
    "fedqhd": {},
    "oracle-qhd": {},
    "oracle-dqn": {},
    "mixed": {"method": "fedqhd", "agents": ["qhd", "dqn:32", "dqn:16x16"]},
    "worlds": {"method": "fedqhd", "dynamics": ["step_size=0.15:0.25"]},
}


@pytest.mark.parametrize("name", NINE)
def test_each_of_the_nine_learns_a_corridor_in_seconds(tmp_path, name):
    options = {"method": name, "setting": "heterogeneous", **NINE[name]}
    summary = train(
        tiny(tmp_path, env=CORRIDOR, clients=3, episodes=80, round_episodes=10, sigma=0.5, eta=0.5, epsilon_decay=0.93,
             eval_episodes=20, widths=[32, 48], lr=3e-3, update_every=1, learning_starts=32, target_steps=40, **options)
    )  # fmt: skip
    # Optimal play ends with 0.5 on the average; standing still ends with -2.
    assert summary["greedy_return"] > 0.3


@pytest.mark.parametrize("source", ["rollout", "visited"])
def test_networks_of_one_shape_still_meet_on_the_anchors(tmp_path, source):
    config = tiny(tmp_path, setting="heterogeneous", agents=["dqn:16"], anchor_source=source)
    assert isinstance(build(config)[1].federation, ThroughAnchors)


def test_mixed_clients_meet_on_the_anchors(tmp_path):
    config = tiny(
        tmp_path, setting="heterogeneous", clients=4, agents=["qhd", "dqn:16", "dqn:16x8"], learning_starts=20
    )
    agents = agents_after(config)
    assert [type(a).__name__ for a in agents] == ["ReplayQHD", "DQN", "DQN", "ReplayQHD"]
    assert [a.sizes for a in agents[1:3]] == [(4, 16, 2), (4, 16, 8, 2)]


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ("CartPole-v1", ["length=0.3:1.0", "gravity=8:12"]),
        ("Acrobot-v1", ["LINK_MASS_1=0.7:1.4", "LINK_MASS_2=0.7:1.4"]),
        ("LunarLander-v3", ["gravity=-11:-8", "wind_power=0:10"]),
        ("MountainCar-v0", ["force=0.0008:0.0014"]),
    ],
)
def test_worlds_differ_in_what_happens(tmp_path, env, names):
    """The same seed and actions lead elsewhere; and each client's constants are within their ranges."""
    config = tiny(tmp_path, env=env, dynamics=names)
    clients, world = build(config)
    for spec in names:
        name, bounds = spec.split("=")
        low, high = map(float, bounds.split(":"))
        assert all(low <= d[name] <= high for d in world.dynamics)
    ends = []
    for e in (make_env(env), *(c.envs[0] for c in clients)):
        e.reset(seed=3)
        ends.append([e.step(0)[0] for _ in range(6)][-1])
    assert not np.allclose(ends[0], ends[1])
    assert not np.allclose(ends[1], ends[2])


def test_worlds_are_evaluated_at_home_and_on_the_nominal_one(tmp_path):
    summary = train(tiny(tmp_path, dynamics=["length=0.3:1.0"], eval_episodes=3))
    assert len(summary["dynamics"]) == 2
    assert np.isfinite(summary["greedy_return_nominal"])
    assert "greedy_return_nominal" not in train(tiny(tmp_path / "plain"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": "fedavg-dqm"}, "did you mean 'fedavg-dqn'"),
        ({"agents": ["qhd", "dqm:64"], "setting": "heterogeneous"}, "agents='dqm:64'.*did you mean 'dqn'"),
        ({"agents": ["dqn:"], "setting": "heterogeneous"}, "agents='dqn:'"),
        ({"agents": ["dqn:0x4"], "setting": "heterogeneous"}, "agents='dqn:0x4'"),
        ({"agents": ["qhd", "dqn:64"], "setting": "homogeneous"}, "agents=.*only values at anchors"),
        (
            {"agents": ["qhd", "dqn:64"], "method": "truncated-fedavg-qhd", "setting": "heterogeneous"},
            "agents=.*does nothing for method=truncated-fedavg-qhd",
        ),
        ({"widths": [0], "method": "fedavg-dqn"}, r"widths=\[0\]"),
        ({"widths": [], "method": "fedavg-dqn"}, r"widths=\[?\(?"),
        ({"dynamics": ["length"]}, "dynamics='length' is not a range"),
        ({"dynamics": ["length=2:1"]}, "dynamics='length=2:1' is not a range"),
        ({"dynamics": ["length=a:b"]}, "dynamics='length=a:b' is not a range"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"lr": -1.0}, "lr=-1.0"),
    ],
)
def test_mistakes_are_named(tmp_path, given, says):
    with pytest.raises(FedQHDError, match=says):
        resolve({"out": str(tmp_path), **given}, preset="plain")


@pytest.mark.parametrize(
    ("env", "dynamics", "says"),
    [
        ("CartPole-v1", "lenght=0.3:1", "dynamics='lenght' is not a constant of CartPole-v1 .did you mean 'length'"),
        ("CartPole-v1", "length=-1:-0.5", "the sign must stay"),
        ("CartPole-v1", "length=-1:2", "the sign must stay"),
        ("LunarLander-v3", "gravity=-30:-20", "refused by LunarLander-v3"),
    ],
)
def test_impossible_worlds_are_refused(tmp_path, env, dynamics, says):
    with pytest.raises(FedQHDError, match=says):
        train(tiny(tmp_path, env=env, dynamics=[dynamics]))
    assert not list(tmp_path.iterdir())
