"""Scalability, ablations and robustness on tiny budgets; damage, by hand."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from test_reproduce import TINY

from fedqhd.agents.model import MLP, Readout
from fedqhd.agents.policy import load_policy
from fedqhd.api import training as api
from fedqhd.encoders import ENCODERS
from fedqhd.gap import reference as references
from fedqhd.runs import outcome
from fedqhd.runs.rounds_log import cpu_seconds_until
from fedqhd.studies import ablation, ablation_study, store
from fedqhd.studies.archive import measured_file
from fedqhd.studies.catalogue import ablation_anchors, ablation_dim, robustness
from fedqhd.studies.catalogue.ablation_anchors import AblationAnchors
from fedqhd.studies.catalogue.ablation_dim import AblationDim
from fedqhd.studies.catalogue.cost import Cost
from fedqhd.studies.catalogue.main import main_job
from fedqhd.studies.catalogue.robustness import DAMAGED, Robustness, damaged, damaged_return, factors, quantise
from fedqhd.studies.catalogue.scalability import Scalability, scalability_job
from fedqhd.studies.plan import Plan, separate_altered
from fedqhd.studies.presets import Cell, parse_set
from fedqhd.studies.reproduce import reproduce
from processes import fedqhd


def generator():
    return np.random.default_rng(5)


@pytest.fixture(params=["fourier", "complex"])
def readout(request):
    encoder = ENCODERS[request.param].sample(3, 50, 1.0, generator())
    W = generator().normal(size=(50, 2))
    return Readout(encoder, (W + 1j * W[::-1] if request.param == "complex" else W).astype(encoder.dtype))


@pytest.fixture
def network():
    rng = generator()
    return MLP([(rng.normal(size=(8, 3)), rng.normal(size=8)), (rng.normal(size=(2, 8)), rng.normal(size=2))])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_as_many_components_are_hit_as_the_share_says(share):
    assert (factors("zeroed", share, 40, generator()) == 0).sum() == round(40 * share)
    assert (factors("flipped", share, 40, generator()) == -1).sum() == round(40 * share)
    assert (factors("noised", share, 40, generator()) != 1).sum() == round(40 * share)


@pytest.mark.parametrize("damage", ["zeroed", "flipped", "noised"])
def test_a_damaged_component_is_a_damaged_row(readout, damage):
    """Q of damaged hypervectors and a sound W, beside Q of sound hypervectors and the damaged W."""
    Z = generator().normal(size=(20, 3)).astype(np.float32)
    by = factors(damage, 0.4, 50, generator())
    expected = np.real((readout.encoder(Z) * by) @ readout.W)
    np.testing.assert_allclose(damaged(readout, damage, 0.4, generator()).q(Z), expected, atol=1e-5)


def test_a_share_of_a_networks_weights_is_hit(network):
    hurt = damaged(network, "zeroed", 0.25, generator())
    for (before, bias), (after, same) in zip(network.layers, hurt.layers, strict=True):
        assert (after == 0).sum() == round(before.size * 0.25)
        np.testing.assert_array_equal(after[after != 0], before[after != 0])
        np.testing.assert_array_equal(bias, same)


def test_bits_by_hand():
    w = np.array([-1.0, -0.4, 0.1, 0.3, 0.9])
    np.testing.assert_allclose(quantise(w, 2), [-1, 0, 0, 0, 1])
    np.testing.assert_allclose(quantise(w, 1), np.array([-1, -1, 1, 1, 1]) * 0.54)
    assert quantise(w, 32) is w
    for bits in (3, 4, 8):
        assert np.abs(quantise(w, bits) - w).max() <= 0.5 / (2 ** (bits - 1) - 1) + 1e-12
        assert len(np.unique(quantise(np.linspace(-1, 1, 5000), bits))) == 2**bits - 1
    np.testing.assert_array_equal(quantise(np.zeros(3), 4), 0)


def test_complex_weights_keep_both_parts():
    w = np.array([1 + 0.5j, -1 - 1j])
    np.testing.assert_allclose(quantise(w, 2), [1 + 0j, -1 - 1j])  # 0.5 is half-way, and rounds to even


@pytest.mark.parametrize(("damage", "nothing"), [("zeroed", 0.0), ("flipped", 0.0), ("noised", 0.0), ("bits", 32)])
def test_no_damage_changes_nothing(readout, network, damage, nothing):
    Z = generator().normal(size=(10, 3)).astype(np.float32)
    for model in (readout, network):
        np.testing.assert_array_equal(damaged(model, damage, nothing, generator()).q(Z), model.q(Z))


# --- small runs ---


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    home = tmp_path_factory.mktemp("studies")
    others = parse_set([*TINY, "engine=local"])
    return Plan(envs=["CartPole-v1"], settings=["homogeneous"], seeds=[0], out=home / "runs", tuned=home / "tuned",
                overrides=others)  # fmt: skip


@pytest.fixture
def results(plan):
    return plan.out.parent / "results"


def collected(study, plan, results):
    """The rows of a study after its finished runs are collected, as the command does it, and its table."""
    reproduce(study, plan, results, lambda all_series, total: 0, lambda text: None)
    rows = store.read_rows(separate_altered(plan, results)[1], study.name)
    return rows, "\n".join(study.table(rows))


def train_all(study, plan, results):
    for job in study.jobs(separate_altered(plan, results)[0]):
        if job.summary() is None:
            api.train(job.config)


def test_robustness(plan, results, monkeypatch):
    monkeypatch.setattr(robustness, "AMOUNTS", {"zeroed": (0.0, 1.0), "bits": (32, 1)})
    monkeypatch.setattr(robustness, "EPISODES", 2)
    study = Robustness()
    assert [job.config.method for job in study.jobs(plan)] == ["fedqhd", "fedqhd", "fedavg-dqn"]
    assert len(study.jobs(dataclasses.replace(plan, presets=["tuned"]))) == 2
    train_all(study, plan, results)
    rows, table = collected(study, plan, results)
    assert len(rows) == 12
    assert {(r["model"], r["preset"]) for r in rows} == {(m, preset) for m, (preset, _) in DAMAGED.items()}
    own, _ = separate_altered(plan, results)
    run = main_job(own, "tuned", Cell("fedqhd", "CartPole-v1", "homogeneous"), 0).folder
    policy = load_policy(run)
    intact = [r["greedy_return"]["iqm"] for r in rows if r["model"] == "fedqhd" and r["amount"] in (0.0, 32)]
    assert intact == [damaged_return(policy, "zeroed", 0.0, 0)] * 2
    gone = next(r for r in rows if r["model"] == "fedqhd" and r["amount"] == 1.0)
    assert gone["greedy_return"]["iqm"] < 20  # all components zeroed: always the first action, and the pole falls
    meant = {"fedqhd": 5, "fedqhd, as in the paper": 3, "dqn": 5}
    assert all(f"| CartPole-v1, {model} (1 of {meant[model]} seeds) |" in table for model in DAMAGED)
    kept = measured_file(run, study.name)
    kept.write_text(kept.read_text().replace('"zeroed"', '"kept"'))
    rows, _ = collected(study, plan, results)
    assert any(r["damage"] == "kept" for r in rows)


@pytest.mark.slow
def test_scalability_through_the_command_line(plan, results):
    args = [
        "--envs",
        "CartPole-v1",
        "--settings",
        "homogeneous",
        "--seeds",
        0,
        "--out",
        plan.out,
        "--tuned",
        plan.tuned,
    ]
    done = fedqhd("reproduce", "scalability", *args, "--results", results, "--set", *TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    own, folder = separate_altered(dataclasses.replace(plan, overrides=parse_set(TINY)), results)
    rows = store.read_rows(folder, "scalability")
    assert [r["clients"] for r in rows] == [1, 2, 5, 20]
    for r in rows:
        summary = scalability_job(own, Cell("fedqhd", "CartPole-v1", "homogeneous"), r["clients"], 0).summary()
        assert len(summary["final_return_per_client"]) == r["clients"]
        assert r["final_return"]["mean"] == pytest.approx(summary["final_return"], abs=1e-2)  # four episodes in all
    assert "| CartPole-v1, homogeneous |" in "\n".join(Scalability().table(rows))
    assert "(1 of 3 seeds)" in "\n".join(Scalability().table(rows))
    archived = (folder / "runs/scalability/CartPole-v1-fedqhd-homogeneous.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["settings"].get("clients", 5) for line in archived) == [1, 2, 5, 20]


@pytest.mark.slow
@pytest.mark.parametrize("over", ["D", "m"])
def test_ablations_without_training_and_with_it(plan, results, over, monkeypatch):
    coarse = dataclasses.replace(references.GRIDS["MountainCar-v0"], points=(41, 41))
    monkeypatch.setattr(ablation_study, "reference", lambda env: references.reference(env, coarse))
    monkeypatch.setattr(ablation, "FIT_STATES", 300)
    pairs = {"D": [(8, 32), (16, 64), (32, 128)], "m": [(16, 8), (16, 32), (16, 64)]}
    monkeypatch.setattr(ablation_dim, "DIMENSIONS", pairs["D"])
    monkeypatch.setattr(ablation_anchors, "ANCHORS", pairs["m"])
    study = {"D": AblationDim, "m": AblationAnchors}[over]()
    monkeypatch.setattr(type(study), "trained", pairs[over][:1])
    monkeypatch.setattr(type(study), "variants", ({},))
    monkeypatch.setattr(type(study), "seeds", (0,))
    small = {"env": "MountainCar-v0", "clients": 2, "episodes": 4, "round_episodes": 2, "eval_episodes": 1,
             "anchor_source": "uniform"}  # fmt: skip
    own = dataclasses.replace(plan, overrides=small)
    train_all(study, own, results)
    rows, table = collected(study, own, results)
    found = ablation_study.groups(rows, over)
    assert list(found) == [f"{told} training, over {over}, uniform anchors, lam=0.01" for told in ("without", "after")]
    without, trained = found.values()
    assert {(r["D"], r["m"], r["compile"]) for r in without} == {
        (*pair, mode) for pair in pairs[over] for mode in ("overwrite", "warm-start")
    }
    assert len(trained) == 2
    assert not any("curve" in r for r in rows)  # for charts alone
    assert bool(ablation_study.slopes_of(without)) == (over == "D")
    assert ("without training, over D" in table) == (over == "D")
    images = separate_altered(own, results)[1] / "images"
    assert [p.name for p in images.glob(f"ablation-{over}-*")] == [f"ablation-{over}-analytic-uniform.png"]


def test_cost_is_of_the_main_tables_runs(plan, results):
    own = dataclasses.replace(plan, methods=["independent-qhd"], presets=["tuned"])
    job = main_job(separate_altered(own, results)[0], "tuned", Cell("independent-qhd", "CartPole-v1", "homogeneous"), 0)
    api.train(job.config)
    (row,), table = collected(Cost(), own, results)
    assert row["split_seconds"]["learning"] == pytest.approx(job.summary()["split_seconds"]["learning"], abs=0.01)
    assert row["bytes_up_per_round"] == 0  # alone, nothing travels
    assert row["paper_minutes"] == {"mean": 1.7, "std": 0.1}
    # A few episodes do not make the paper's 466.3: it counts with all that it took.
    whole = job.summary()["cpu_seconds"]
    assert row["until"] == {"return": 466.3, "cpu_seconds": round(whole, 1), "runs": 1, "reached": 0}
    assert "(1 of 1 not)" in table


def test_cpu_seconds_until_a_return_are_those_of_the_rounds_up_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(outcome, "LAST", 2)
    rows = [{"round": e // 3, "client": i, "episode": e, "return": float(e)} for i in (0, 1) for e in range(9)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps({"cpu_seconds": s}) + "\n" for s in (1.0, 2.0, 4.0)))
    returns = outcome.training_returns(tmp_path, 2, 9)
    # Episodes 3 and 4 have a mean of 3.5, and are over when five have been played: in the second round of three.
    assert outcome.episodes_to_goal(returns, 3.5) == 5
    assert cpu_seconds_until(tmp_path, 5) == 3.0
    assert cpu_seconds_until(tmp_path, 3) == 1.0
    assert outcome.episodes_to_goal(returns, 7.5) == 9
    assert outcome.episodes_to_goal(returns, 7.6) is None
