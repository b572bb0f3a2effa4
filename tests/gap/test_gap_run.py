"""The gap of finished runs, and advice before one: what is measured, what is said, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import fedqhd
from conftest import same, tiny
from fedqhd.agents.policy import greedy_returns, load_policy, model_path
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import read_arrays, write_arrays
from fedqhd.envs.make import make_env
from fedqhd.gap import advise as advising
from fedqhd.gap import measure
from fedqhd.gap.advise import Bench, advise, teacher_of_run
from fedqhd.gap.compiled import members
from fedqhd.gap.measure import measure_gap, verdict
from fedqhd.gap.reference import has_reference
from fedqhd.runs import exchange
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train
from processes import fedqhd as command

SETTINGS = {"env": "CartPole-v1", "setting": "heterogeneous", "learner": "least-squares", "episodes": 30}


def trained(folder, **settings):
    train(tiny(folder, **{**SETTINGS, **settings}))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("gap") / "run", anchors=80)


@pytest.fixture(scope="module")
def report(run):
    """With the run's own client 0 standing for Q*, which needs no reference."""
    return measure_gap(run, load_policy(run), episodes=2)


def test_the_exchange_explains_the_saved_weights(run, report):
    """Compiling the kept teacher from the kept weights gives the installed ones, up to W's float32."""
    ex = exchange.load(run)
    assert ex.anchors.shape == (80, 4)
    assert ex.pi.tolist() == [0.5, 0.5]
    # Q_bar at the anchors is the mean of the kept models there (values of kernels: about 1e-5 of their size).
    np.testing.assert_allclose(ex.teacher(ex.anchors), ex.Q, atol=1e-4 * np.abs(ex.Q).max())
    for row in report["clients"]:
        assert row["recompiled"] < 1e-4


def test_actions_that_were_kept_in_training_are_kept_here(tmp_path):
    run = trained(tmp_path, action_repeat=5, anchors=80)
    policy = load_policy(run, 1)
    row = measure_gap(run, episodes=4)["clients"][1]
    assert row["greedy_after"] == greedy_returns(policy, policy.make_env(), 4, 0, 1).mean()
    assert row["greedy_after"] != greedy_returns(policy, make_env(policy.env), 4, 0, 1).mean()
    # Our Q* is of the environment in which every step has its action.
    assert has_reference("CartPole-v1", 1)
    assert not has_reference("CartPole-v1", 5)


def test_only_who_took_part_has_a_weight(tmp_path):
    ex = exchange.load(trained(tmp_path, clients=4, participation=0.5))
    assert sorted(ex.pi.tolist()) == [0, 0, 0.5, 0.5]
    np.testing.assert_allclose(ex.teacher(ex.anchors), ex.Q, atol=1e-4 * np.abs(ex.Q).max())


def test_a_teacher_that_is_no_mean_is_refused(tmp_path):
    with pytest.raises(FedQHDError, match="defined only at the anchors"):
        exchange.load(trained(tmp_path, aggregate="median"))


def test_client_zero_is_its_own_oracle(report):
    """Q* = Q of client 0 after the exchange: its projection is itself, so its gap is 0, and client 1's is not."""
    zero, one = report["clients"]
    assert zero["gap"]["rms"] < 1e-2 * one["gap"]["rms"]
    assert zero["policy_value_gap"] == 0
    assert zero["compilation_error"] == zero["gap"]["max"] >= max(zero["gap"]["max_per_action"])
    assert one["representation_rms"] > 10 * zero["representation_rms"]


def test_the_report_is_complete(report):
    zero = report["clients"][0]
    assert (zero["features"], zero["bound"]["rank"]) == (64, 64)
    assert 0 < zero["effective_rank"] < 64
    assert zero["bound"]["total"] >= zero["bound"]["corrected"] >= zero["static_gap"]["max"]
    # Warm-start from the oracle has no shrinkage and nothing unseen, only what leaks in.
    assert zero["static_gap_warm_start"]["max"] <= zero["bound"]["corrected"]
    assert report["angles"][0]["pair"] == [0, 1]
    assert report["angles"][0]["misalignment"][0] == 1.0  # the second has more features
    assert report["states"] >= 8000
    json.dumps(report)


@pytest.fixture
def corner(tmp_path):
    """All anchors near one state, far from where a pole is balanced."""
    states = np.random.default_rng(0).uniform(0.9, 1.0, (80, 4)) * np.array([2.4, 2.5, 0.2, 3.0])
    np.save(tmp_path / "corner.npy", states)
    return {"anchor_source": "file", "anchor_file": str(tmp_path / "corner.npy")}


def test_anchors_in_a_corner_are_found_out(tmp_path, corner):
    """The exchange does little, and the tool says so."""
    exact = {"features": "float32"}
    narrow = measure_gap(trained(tmp_path / "narrow", **corner, **exact), episodes=1)["clients"]
    wide = measure_gap(trained(tmp_path / "wide", anchors=400, anchor_source="teacher", **exact), episodes=1)["clients"]
    for row in narrow:
        there = row["errors"]["policy"]
        assert there["after"] > 0.5 * there["before"]
        assert there["held_back"] > there["misfit"]
    assert min(r["effective_rank"] for r in wide) > 3 * max(r["effective_rank"] for r in narrow)
    assert all("hardly see" in verdict(row) or "ridge holds" in verdict(row) for row in narrow)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_corner_holds_clients_back_with_rounded_features_too(tmp_path, corner, seed):
    """All clients together: of a single one misfit may be the larger part."""
    rows = measure_gap(trained(tmp_path / "run", seed=seed, **corner), episodes=1)["clients"]
    there = [row["errors"]["policy"] for row in rows]
    assert all(t["after"] > 0.5 * t["before"] for t in there)
    assert sum(t["held_back"] for t in there) > sum(t["misfit"] for t in there)


def test_the_exchange_survives_an_interruption(tmp_path, monkeypatch):
    from fedqhd.runs import run as experiment

    whole, cut = (tiny(tmp_path / name, **SETTINGS) for name in ("whole", "cut"))
    train(whole)

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "summarise", stop)
        with pytest.raises(KeyboardInterrupt):
            train(cut)
    train(cut, resume=True)
    a, b = (read_arrays(exchange.path_of(c.folder))[0] for c in (whole, cut))
    assert same(list(a.values()), list(b.values()))


def test_too_few_states_are_refused_with_the_number(run):
    with pytest.raises(FedQHDError, match=r"states=100 are too few .* at least 320 are needed"):
        measure_gap(run, states=100)


def test_what_has_no_gap_is_refused(tmp_path, run):
    with pytest.raises(FedQHDError, match=r"no config\.toml"):
        measure_gap(tmp_path / "nothing")
    shared = tmp_path / "shared"
    train(tiny(shared, **{**SETTINGS, "setting": "homogeneous"}))
    with pytest.raises(FedQHDError, match="clients with one encoder average W"):
        measure_gap(shared)
    precise = trained(tmp_path / "precise", weights="precision")
    with pytest.raises(FedQHDError, match="weights=precision"):
        measure_gap(precise)


def test_a_run_without_a_gap_is_refused_before_the_reference_is_computed(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDQHD_CACHE", str(tmp_path / "cache"))
    train(tiny(tmp_path / "shared", **{**SETTINGS, "setting": "homogeneous"}))
    with pytest.raises(FedQHDError, match="clients with one encoder average W"):
        fedqhd.measure_gap(tmp_path / "shared")
    assert not (tmp_path / "cache").exists()


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    folder = trained(tmp_path / "x", episodes=6)
    arrays, about = read_arrays(model_path(folder, 1))
    arrays["W"][3, 0] = np.nan
    write_arrays(model_path(folder, 1), arrays, {k: v for k, v in about.items() if k != "version"})
    with pytest.raises(FedQHDError, match=r"client-1\.npz is damaged .*'W' has a value that is not finite"):
        members(folder, exchange.load(folder))


def test_what_would_not_fit_is_refused_with_the_need(run, monkeypatch):
    monkeypatch.setattr(measure, "free_memory", lambda: 1000)
    with pytest.raises(FedQHDError, match=r"anchors=80 and 96 real features need .* GB .* choose fewer anchors"):
        measure_gap(run)


def test_the_command_prints_and_draws(run):
    done = command("gap", run, "--reference", run, "--eval-episodes", 1)
    assert done.returncode == 0, done.stderr
    for words in (
        "What the anchors see",
        "Distance from the teacher",
        "Against the oracle",
        "client 1: on states that policies visit",
    ):
        assert words in done.stdout
    assert json.loads((run / "gap.json").read_text())["lam"] == 0.01
    with Image.open(run / "gap.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gap"], "RUN is missing"),
        (["gap", "RUN", "--sigma", 2], "sigma=2.0 can only be given with --advise"),
        (["gap", "/nowhere"], "no config.toml"),
        (
            ["gap", "--advise", "--env", "CartPole-v1", "--method", "oracle-dqn"],
            "method=oracle-dqn with setting=heterogeneous compiles nothing",
        ),
        (["gap", "--advise", "/nowhere"], "no config.toml"),
    ],
)
def test_mistakes_are_one_sentence(run, arguments, words):
    done = command(*(run if a == "RUN" else a for a in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_advice_by_the_teacher_of_a_run(run):
    """On its own teacher, the advised anchors and ridge beat 20 rollout anchors without a ridge to speak of."""
    c = resolve({**SETTINGS, "dims": [64, 96], "clients": 2, "anchors": 20, "anchor_source": "rollout", "lam": 1e-6})
    advice = advise(c, teacher_of_run(run))
    given, advised = advice["given"], advice["advised"]
    assert not advice["well_conditioned"]
    assert "20 anchors have to determine" in advice["reason"]
    assert advised["held_out_error"] < given["held_out_error"] / 2
    assert advised["anchors"] >= 4 * max(advised["effective_rank"]) * 0.8
    assert {x["source"] for x in advice["compared"]} == set(advising.SOURCES)
    again = advise(resolve({**SETTINGS, "dims": [64, 96], "clients": 2, "anchors": advised["anchors"],
                            "anchor_source": advised["source"], "lam": advised["lam"]}),
                   teacher_of_run(run))  # fmt: skip
    assert again["well_conditioned"]


def test_a_teacher_is_asked_in_its_own_scaling(run):
    """The same run asked by a setting that scales otherwise: other features, the same values at the same raw states."""
    common = {**SETTINGS, "dims": [64, 96], "clients": 2}
    ours, other = (Bench(resolve({**common, **extra}), teacher_of_run(run)) for extra in ({}, {"scaling": "rollout"}))
    raw = np.random.default_rng(0).uniform(-0.2, 0.2, (20, 4))
    np.testing.assert_allclose(ours.values(ours.scaler(raw)), other.values(other.scaler(raw)), atol=1e-2)
    with pytest.raises(FedQHDError, match="env='Acrobot-v1' is not that of the run"):
        advise(resolve({"env": "Acrobot-v1", "setting": "heterogeneous"}), teacher_of_run(run))


def test_lam_is_that_of_least_leave_one_out_error(run):
    c = resolve({**SETTINGS, "dims": [64, 96], "clients": 2})
    bench = Bench(c, teacher_of_run(run))
    best = bench.try_out("teacher", 250)
    for lam in advising.LAMBDAS[::4]:
        assert best.loo_error <= bench.try_out("teacher", 250, float(lam)).loo_error + 1e-12


def test_advice_on_the_command_line(run):
    done = command("gap", run, "--advise", "--anchors", 20)
    assert done.returncode == 0, done.stderr
    assert "given: not well conditioned" in done.stdout
    assert "change it to: --anchors" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "LunarLander-v3"])
def test_advice_beats_the_papers_anchors(env):
    """200 anchors of random rollouts and lam = 1e-4, against the advice: compiled values on held-out states. The
    held-out states are drawn anew, by a seed that the advice has not seen."""
    given = {"env": env, "setting": "heterogeneous", "dims": [300, 500, 800], "clients": 3, "seed": 100}
    paper = resolve({**given, "anchors": 200, "anchor_source": "rollout", "lam": 1e-4}, preset="plain")
    teacher = advising.pilot(paper)
    advised = advise(paper, teacher)["advised"]
    fresh = Bench(resolve({**given, "seed": 101}, preset="plain"), teacher)
    ours = fresh.try_out(advised["source"], advised["anchors"], advised["lam"])
    theirs = fresh.try_out("rollout", 200, 1e-4)
    assert ours.held_out_error < 0.9 * theirs.held_out_error


@pytest.mark.slow
def test_advice_costs_cartpole_no_return(tmp_path):
    """Trained with the paper's anchors and with those advised, two seeds: the return does not drop."""
    common = {**SETTINGS, "dims": [200, 300, 500], "clients": 3, "episodes": 100, "round_episodes": 10}
    paper = {"anchors": 200, "anchor_source": "rollout", "lam": 1e-4}
    a = fedqhd.advise(resolve({**common, **paper, "seed": 100}, preset="plain"))["advised"]
    advised = {"anchors": a["anchors"], "anchor_source": a["source"], "lam": a["lam"]}
    final = {}
    for name, anchors in (("paper", paper), ("advised", advised)):
        own = [{**common, **anchors, "seed": s, "out": str(tmp_path / f"{name}-{s}")} for s in (100, 101)]
        runs = [resolve(settings, preset="plain") for settings in own]
        final[name] = np.mean([train(c)["greedy_return"] for c in runs])
    assert final["advised"] >= final["paper"] - 10
