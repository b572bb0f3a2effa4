"""Differential privacy: what is sent is clipped and noised as it says, and worth what the accountant says."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota, Transition
from fedqhd.federation import unwrapped
from fedqhd.federation.wrappers.accountant import delta_of, epsilon_of
from fedqhd.federation.wrappers.privacy import Privacy, privatised
from fedqhd.runs.build import build
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train
from fedqhd.ui.cli import main
from worlds import CORRIDOR

DP = {"setting": "heterogeneous", "dp_clip": 3.0, "dp_noise": 0.7, "env": CORRIDOR}

HET = {"setting": "heterogeneous"}


@pytest.mark.parametrize(
    ("noise", "reports", "delta", "epsilon"),
    [
        # By the privacy loss distributions of Google's dp-accounting 0.6.0, whose bound is 1e-4 wide at the most.
        (1.0, 1, 1e-5, 4.37717810),
        (2.0, 12, 1e-5, 8.38541893),
        (10.0, 12, 1e-5, 1.32623125),
        (0.5, 3, 1e-6, 21.83921641),
        (5.0, 100, 1e-3, 7.58127993),
    ],
)
def test_epsilon_is_that_of_an_independent_accountant(noise, reports, delta, epsilon):
    assert epsilon_of(noise, reports, delta) == pytest.approx(epsilon, abs=1e-6)


def test_delta_by_hand():
    """Phi(-1/2) - e Phi(-3/2) with Phi(-1/2) = 0.3085375, Phi(-3/2) = 0.0668072."""
    assert delta_of(1.0, 1.0) == pytest.approx(0.3085375 - math.e * 0.0668072, abs=1e-6)


@given(st.floats(0.3, 30), st.integers(1, 1000), st.sampled_from([1e-3, 1e-5, 1e-9]))
def test_epsilon_and_delta_are_inverse_and_below_the_bound_by_renyi_divergence(noise, reports, delta):
    epsilon, mu = epsilon_of(noise, reports, delta), math.sqrt(reports) / noise
    if epsilon:
        assert delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-5)
    # Mironov (2017): min over alpha of T alpha / (2 z^2) + log(1 / delta) / (alpha - 1)
    assert epsilon <= mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9


def test_without_reports_nothing_is_spent_and_without_noise_everything():
    assert epsilon_of(1.0, 0, 1e-5) == 0.0
    assert epsilon_of(0.0, 1, 1e-5) == math.inf
    assert epsilon_of(1e6, 1, 1e-3) == 0.0


def test_a_change_is_clipped_by_hand():
    """The change (3, 4) and (0, 12) has norm 13; at 6.5 it is halved."""
    teacher = {"a": np.array([[1.0, 1.0]]), "b": np.array([2.0, 2.0])}
    report = {"a": np.array([[4.0, 5.0]]), "b": np.array([2.0, 14.0])}
    sent = privatised(report, teacher, Privacy(6.5, 0.0, 0), 0, 0)
    assert sent["a"].tolist() == [[2.5, 3.0]]
    assert sent["b"].tolist() == [2.0, 8.0]
    assert privatised(report, teacher, Privacy(13.0, 0.0, 0), 0, 0)["b"].tolist() == [2.0, 14.0]
    first = privatised({"Q": np.array([3.0, 4.0])}, None, Privacy(1.0, 0.0, 0), 0, 0)
    assert np.allclose(first["Q"], [0.6, 0.8], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_noise_has_the_size_that_the_accountant_counts_on(dtype):
    report = {"W": np.full((200, 50), 5 + (5j if dtype is np.complex64 else 0)).astype(dtype)}
    sent = privatised(report, report, Privacy(2.0, 1.5, 0), 0, 0)["W"]
    assert sent.dtype == dtype
    noise = np.ascontiguousarray(sent - report["W"]).view(report["W"].real.dtype).ravel()
    # 10,000 draws: the standard deviation is off by 0.7 % as a rule, the mean by 0.06.
    assert noise.std() == pytest.approx(2 * 2.0 * 1.5, rel=0.04)
    assert abs(noise.mean()) < 0.3


def test_noise_differs_by_client_and_round_and_is_nobodys_to_repeat_without_a_seed():
    report = {"Q": np.zeros(5)}

    def sent(seed, client, episodes, open_steps=0):
        return privatised(report, report, Privacy(1.0, 1.0, seed), client, episodes, open_steps)["Q"].tolist()

    assert sent(0, 0, 4) == sent(0, 0, 4)
    assert len({str(sent(*which)) for which in ((0, 0, 4), (1, 0, 4), (0, 1, 4), (0, 0, 8), (None, 0, 4))}) == 5
    assert sent(None, 0, 4) != sent(None, 0, 4)
    # Rounds of steps in which no episode ends may not send the same noise twice: it would cancel out.
    assert len({str(sent(0, 0, 4, open_steps)) for open_steps in (0, 30, 60, 90)}) == 4


def test_a_run_sends_clipped_noise_and_says_what_it_is_worth(tmp_path, capsys):
    config = tiny(tmp_path, **DP, episodes=6, round_episodes=2)
    clients, world = build(config)
    teacher = {"Q": np.zeros((len(world.public.anchors), world.public.actions))}
    reply = clients[0].round(world.federation, teacher, Quota(2))
    honest = unwrapped(world.federation).report(clients[0], teacher)["Q"]
    assert not np.allclose(reply.payload["Q"], honest)
    summary = train(config)
    assert summary["privacy"] == {
        "epsilon": epsilon_of(0.7, 3, 1e-5), "delta": 1e-5, "reports": 3, "clip": 3.0, "noise": 0.7,
    }  # fmt: skip
    assert "privacy" not in train(tiny(tmp_path / "none", env=CORRIDOR))


def test_without_noise_no_epsilon_is_promised(tmp_path):
    summary = train(tiny(tmp_path, **{**DP, "dp_noise": 0.0}))
    assert summary["privacy"]["epsilon"] is None
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dp_clip": -1.0}, "dp_clip=-1.0 is not possible: it must be at least 0"),
        ({"dp_noise": -0.1}, "dp_noise=-0.1 is not possible"),
        ({"dp_delta": 0.0}, "dp_delta=0.0 is not possible: it must be above 0 and below 1"),
        ({"dp_delta": 1.0}, "dp_delta=1.0 is not possible"),
        ({"dp_clip": 1.0, "method": "independent-qhd"}, "dp_clip=1.0 does nothing for method=independent-qhd"),
        ({"dp_clip": 1.0, "method": "fedavg-dqn"}, "dp_clip=1.0 does nothing for method=fedavg-dqn"),
        (
            {"dp_clip": 1.0, "setting": "heterogeneous", "anchor_source": "visited"},
            "anchor_source=visited is not possible: .*no states",
        ),
        (
            {"dp_clip": 1.0, "setting": "heterogeneous", "anchor_source": "teacher"},
            "anchor_source=teacher is not possible",
        ),
        (
            {"dp_clip": 1.0, "exchange": "statistics", "learner": "least-squares"},
            "exchange=statistics is not possible: differential privacy covers only W or Q",
        ),
    ],
)
def test_what_would_not_be_covered_is_refused(settings, sentence):
    with pytest.raises(FedQHDError, match=sentence):
        resolve({"env": CORRIDOR, **settings})


def test_the_command_line_prints_epsilon(tmp_path, capsys):
    words = "train --env CartPole-v1 --setting heterogeneous --learner online --dims 32 --clients 2 --episodes 4"
    flags = "--round-episodes 2 --eval-episodes 1 --anchor-source rollout --dp-clip 10 --dp-noise 2 --engine local"
    assert main([*words.split(), *flags.split(), "--out", str(tmp_path / "run")]) == 0
    epsilon = f"epsilon {epsilon_of(2.0, 2, 1e-5):.3g} at delta 1e-05"
    assert f"differential privacy of W or Q after 2 reports per client: {epsilon}" in capsys.readouterr().out


def test_values_at_anchors_tell_where_a_client_has_been_unless_they_are_noised(tmp_path):
    """A client that has only seen the left half of a corridor has learned nothing of the right one, and it shows."""
    (client, *_), world = build(tiny(tmp_path, env=CORRIDOR, learner="online", sigma=0.2, dims=[200], **HET))
    draw = np.random.default_rng(0)
    for _ in range(2000):
        s, s_next = draw.uniform(-1, 0, (2, 1)).astype(np.float32)
        client.agent.observe(Transition(s, int(draw.integers(2)), -0.1, 0.9, s_next))
    Q = unwrapped(world.federation).report(client, None)["Q"]
    left = np.asarray(world.public.anchors)[:, 0] < 0

    def contrast(values):
        return float(np.abs(values[left]).mean() / np.abs(values[~left]).mean())

    assert contrast(Q) > 2
    noised = privatised({"Q": Q}, None, Privacy(clip=1.0, noise=1.0, seed=0), client=0, episodes=0)["Q"]
    assert 0.8 < contrast(noised) < 1.25
