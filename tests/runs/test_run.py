"""Whole runs: what they compute, that they repeat, resume and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from conftest import TESTS, same, tiny
from fedqhd.agents.policy import load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.encoders.settings import encoder_of
from fedqhd.engines import LocalEngine
from fedqhd.federation import plan_rounds, run_rounds
from fedqhd.runs import checkpoint
from fedqhd.runs.build import build
from fedqhd.runs.run import train
from worlds import CORRIDOR

BOTH = pytest.mark.parametrize("setting", ["homogeneous", "heterogeneous"])
LEARNERS = pytest.mark.parametrize("learner", ["replay", "online", "least-squares"])


def models(folder):
    return [load_policy(folder, client).model.W for client in range(2)]


@BOTH
@LEARNERS
def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path, setting, learner):
    options = {"setting": setting, "learner": learner}
    train(tiny(tmp_path / "a", **options))
    train(tiny(tmp_path / "b", **options))
    train(tiny(tmp_path / "c", seed=1, **options))
    assert same(models(tmp_path / "a"), models(tmp_path / "b"))
    assert not same(models(tmp_path / "a"), models(tmp_path / "c"))
    read = [(tmp_path / x / "metrics.jsonl").read_text() for x in "abc"]
    assert read[0] == read[1] != read[2]


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_blas_threads(tmp_path):
    """In fresh processes, since a library reads its number of threads once. Large enough for BLAS to split the work."""
    code = "import sys; from conftest import tiny; from fedqhd.runs.run import train;" \
           "train(tiny(sys.argv[1], setting='heterogeneous', dims=[700, 900], anchors=600))"  # fmt: skip
    for threads in ("1", "2"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "PYTHONPATH": str(TESTS)}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / threads)], check=True, env=env)
    assert same(models(tmp_path / "1"), models(tmp_path / "2"))


@BOTH
@LEARNERS
def test_one_client_is_no_federation(tmp_path, setting, learner):
    """N=1: the federated run equals the client left alone, to the bit."""
    config = tiny(tmp_path, clients=1, setting=setting, learner=learner)
    (federated,), world = build(config)
    list(run_rounds(LocalEngine([federated], world.federation), world.federation, plan_rounds(Quota(6), Quota(4))))
    (alone,), _ = build(config)
    for episodes in (4, 2):
        alone.play(Quota(episodes))
        alone.agent.sync_target()
    assert np.any(alone.agent.W)
    np.testing.assert_array_equal(federated.agent.W, alone.agent.W)


@BOTH
@LEARNERS
def test_resuming_after_any_round_gives_the_same_bits(tmp_path, monkeypatch, setting, learner):
    options = {"setting": setting, "learner": learner, "episodes": 9, "round_episodes": 3}
    train(tiny(tmp_path / "whole", **options))
    for cut in (1, 2):
        folder = tmp_path / f"cut{cut}"
        real = checkpoint.save

        def save_then_die(folder, done, *rest, cut=cut, real=real):
            real(folder, done, *rest)
            if done.rounds_done == cut:
                raise KeyboardInterrupt

        monkeypatch.setattr(checkpoint, "save", save_then_die)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(folder, **options))
        monkeypatch.setattr(checkpoint, "save", real)
        with open(folder / "metrics.jsonl", "a") as f:
            f.write('{"round": 2, "half a li')  # as a cut-off run leaves it
        summary = train(tiny(folder, **options), resume=True)
        assert same(models(folder), models(tmp_path / "whole"))
        assert (folder / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()
        assert summary["env_steps"] == json.loads((tmp_path / "whole" / "summary.json").read_text())["env_steps"]


@pytest.mark.parametrize("source", ["visited", "teacher"])
def test_resuming_anchors_that_were_met(tmp_path, monkeypatch, source):
    options = {"setting": "heterogeneous", "anchor_source": source, "episodes": 9, "round_episodes": 3}
    train(tiny(tmp_path / "whole", **options))
    real = checkpoint.save

    def save_then_die(*args):
        real(*args)
        if args[1].rounds_done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(tiny(tmp_path / "cut", **options))
    monkeypatch.setattr(checkpoint, "save", real)
    train(tiny(tmp_path / "cut", **options), resume=True)
    assert same(models(tmp_path / "cut"), models(tmp_path / "whole"))


def test_what_a_run_leaves_behind(tmp_path):
    config = tiny(tmp_path, setting="heterogeneous")
    summary = train(config)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sorted((r["client"], r["episode"]) for r in rows) == [(c, e) for c in range(2) for e in range(6)]
    assert [r["round"] for r in rows] == [0] * 8 + [1] * 4
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert summary["final_return"] == pytest.approx(np.mean([r["return"] for r in rows]))
    assert summary["env_steps"] == sum(r["length"] for r in rows)
    # Each client sends 40 anchors times 2 actions in double precision.
    assert summary["bytes_up_per_round"] == summary["bytes_down_per_round"] == 2 * 40 * 2 * 8
    assert summary["protocol"] == "AnchorCompile"
    assert summary["cpu_seconds"] > 0
    # The second round was shorter than the first: a longer run would begin again before it.
    assert [p.name for p in tmp_path.glob("checkpoint*")] == ["checkpoint-000001.npz"]


@BOTH
@pytest.mark.parametrize("encoder", ["complex", "symbolic"])
def test_every_encoder_runs(tmp_path, setting, encoder):
    summary = train(tiny(tmp_path, setting=setting, encoder=encoder))
    assert np.isfinite(summary["greedy_return"])


@pytest.mark.parametrize("source", ["uniform", "mix", "visited", "teacher"])
def test_every_anchor_source_runs(tmp_path, source):
    train(tiny(tmp_path, setting="heterogeneous", anchor_source=source))
    assert np.all([np.any(W) for W in models(tmp_path)])


def test_repeated_actions_are_trained_counted_and_saved(tmp_path):
    summary = train(tiny(tmp_path, env=CORRIDOR, action_repeat=3, epsilon_end=1.0))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert summary["env_steps"] == sum(r["length"] for r in rows)
    # Every step but the last costs 0.1, so the return tells the length.
    assert all(r["return"] == pytest.approx(-0.1 * r["length"] + (1.1 if r["return"] > -1.9 else 0)) for r in rows)
    assert any(r["length"] % 3 for r in rows)
    assert load_policy(tmp_path).action_repeat == 3


@pytest.mark.parametrize("weights", ["steps", [0.9, 0.1]])
def test_weights_change_the_average(tmp_path, weights):
    train(tiny(tmp_path / "a", setting="homogeneous"))
    train(tiny(tmp_path / "b", setting="homogeneous", weights=weights))
    assert not same(models(tmp_path / "a"), models(tmp_path / "b"))


NO_STATES = np.zeros((0, 4), np.float32)
"""Of four variables; only encoders that learn from data want more."""


def test_encoders_of_a_setting(tmp_path):
    one = tiny(tmp_path, setting="homogeneous", dims=[64, 96])
    assert len({encoder_of(one, i, NO_STATES).fingerprint() for i in range(5)}) == 1
    assert encoder_of(one, 3, NO_STATES).D == 64
    many = tiny(tmp_path, setting="heterogeneous", dims=[64, 96], sigma=2.0, sigma_spread=0.5)
    encoders = [encoder_of(many, i, NO_STATES) for i in range(40)]
    assert [e.D for e in encoders[:4]] == [64, 96, 64, 96]
    sigmas = [1 / (2 * np.pi * e.arrays["Omega"].std()) for e in encoders]
    # Each estimate comes from 256 to 384 normal draws, so is good to 4 %.
    assert 0.9 < min(sigmas) < 1.4
    assert 2.6 < max(sigmas) < 3.3


def test_a_folder_that_holds_a_run_is_kept(tmp_path):
    train(tiny(tmp_path))
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(FedQHDError, match="already holds a run"):
        train(tiny(tmp_path, seed=1))
    assert (tmp_path / "metrics.jsonl").read_text() == before
    train(tiny(tmp_path, seed=1), overwrite=True)
    assert (tmp_path / "metrics.jsonl").read_text() != before


def test_a_mistake_does_not_cost_the_run_it_would_overwrite(tmp_path):
    train(tiny(tmp_path))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(FedQHDError, match="anchor_file="):
        train(tiny(tmp_path, setting="heterogeneous", anchor_source="file", anchor_file="none.npy"), overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_resuming_with_other_settings_is_refused(tmp_path):
    train(tiny(tmp_path))
    with pytest.raises(FedQHDError, match=r"eta=0.5 differs.*0.8"):
        train(tiny(tmp_path, eta=0.5), resume=True)


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    first = train(tiny(tmp_path))
    assert train(tiny(tmp_path), resume=True) == first


class Poisoned(gymnasium.Wrapper):
    """CartPole whose reward breaks in the third episode."""

    resets = 0

    def reset(self, **kwargs):
        self.resets += 1
        return self.env.reset(**kwargs)

    def step(self, action):
        state, reward, *rest = self.env.step(action)
        return state, float("nan") if self.resets > 5 else reward, *rest


def test_a_reward_that_is_not_finite_stops_the_run_and_keeps_what_was_written(tmp_path, monkeypatch):
    from fedqhd.runs import build as module

    monkeypatch.setattr(module, "make_env", lambda env_id, **_: Poisoned(gymnasium.make(env_id)))
    with pytest.raises(FedQHDError, match=r"client 0, episode 5: step 0 .* reward nan"):
        train(tiny(tmp_path, episodes=8, round_episodes=2, env="CartPole-v1"))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [r["episode"] for r in rows if r["client"] == 0] == [0, 1, 2, 3]


@pytest.mark.parametrize("learner", ["replay", "online"])
def test_divergence_stops_the_run_with_client_and_episode(tmp_path, learner):
    with pytest.raises(FedQHDError, match=r"client \d, episode \d+: .*eta="):
        train(tiny(tmp_path, learner=learner, eta=1e6, step="plain", episodes=40))


@BOTH
@LEARNERS
def test_federation_learns_a_corridor_in_seconds(tmp_path, setting, learner):
    summary = train(
        tiny(tmp_path, env=CORRIDOR, clients=3, episodes=60, round_episodes=10, setting=setting, learner=learner,
             scaling="rollout", sigma=0.5, eta=0.3, epsilon_decay=0.9, eval_episodes=20)
    )  # fmt: skip
    # Optimal play ends with 0.5 on the average; standing still ends with -2.
    assert summary["greedy_return"] > 0.35


def test_federation_learns_cartpole_in_seconds(tmp_path):
    """Random play lasts 22 steps; a few dozen federated episodes last several times as long."""
    summary = train(
        tiny(tmp_path, clients=3, episodes=70, round_episodes=10, setting="heterogeneous", dims=[300, 400, 500],
             anchors=100, epsilon_decay=0.93, eval_episodes=10)
    )  # fmt: skip
    assert summary["greedy_return"] > 110
