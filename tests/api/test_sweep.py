"""Sweeps: what they run, what they refuse before they run anything, and that they go on where they were stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedqhd
from fedqhd.api.sweep import plan_jobs
from processes import read_until

SMALL = {"clients": 2, "episodes": 4, "round_episodes": 2, "eval_episodes": 1, "dims": 30, "anchors": 20}


def plan(vary, seeds=(0,), out="runs", preset="plain", **settings):
    return plan_jobs(vary, seeds, Path(out), preset, settings)


def test_every_combination_is_run_on_every_seed():
    jobs, by = plan({"method": ["fedqhd", "independent-qhd"], "gamma": [0.9, 0.99]}, [3, 5], clients=2)
    assert by == ["method", "gamma"]
    assert [(j.config.method, j.config.gamma, j.config.seed) for j in jobs] == [
        (method, gamma, seed) for method in ("fedqhd", "independent-qhd") for gamma in (0.9, 0.99) for seed in (3, 5)
    ]
    assert {j.config.clients for j in jobs} == {2}
    assert {j.config.engine for j in jobs} == {"local"}  # cores are for runs
    assert str(jobs[0].folder) == "runs/fedqhd,gamma=0.9/seed-3"
    assert jobs[0].name == "fedqhd, gamma=0.9, seed 3"


def test_a_list_varies_and_anything_else_is_one_value():
    def dims(value):
        jobs, _ = plan({"dims": value}, setting="heterogeneous")
        return [job.config.dims for job in jobs]

    assert dims([60, 90]) == dims(np.array([60, 90])) == dims(range(60, 91, 30)) == [(60,), (90,)]
    assert dims((60, 90)) == dims([(60, 90)]) == dims([[60, 90]]) == [(60, 90)]
    assert dims([60, (60, 90)]) == [(60,), (60, 90)]
    assert dims(60) == [(60,)]


def test_a_keyword_is_one_value_as_in_train():
    jobs, by = plan({}, setting="heterogeneous", dims=[60, 90])
    assert [job.config.dims for job in jobs] == [(60, 90)]
    assert by is None


def test_a_common_setting_is_for_those_runs_to_which_it_applies():
    jobs, _ = plan({"method": ["fedqhd", "fedavg-dqn"]}, dims=50)
    assert [job.config.get("dims") for job in jobs] == [(50,), None]


@pytest.mark.parametrize(
    ("vary", "settings", "says"),
    [
        ({"metod": ["fedqhd"]}, {}, "unknown setting 'metod' (did you mean 'method'?)"),
        ({"method": ["fedqhd", "fedqdh"]}, {}, "method='fedqdh' is unknown"),
        ({"method": ["fedqhd", "fedavg-dqn"], "dims": [50, 60]}, {}, "dims=[50] does nothing for method=fedavg-dqn"),
        ({"method": ["fedavg-dqn", "oracle-dqn"]}, {"dims": 50}, "dims=[50] does nothing"),
        ({"clients": [2, 0]}, {}, "clients=0"),
        ({"dims": []}, {}, "dims=[] lists no value"),
        ({"dims": [60, 60]}, {}, "'dims=60, seed 0' occurs twice"),
        ({"dims": [60, 70]}, {"dims": 60}, "dims=60 is given twice"),
        ({"seed": [0, 1]}, {}, "seed cannot be varied: give seeds="),
        ({}, {"clients": 0}, "clients=0"),
        ({}, {"seeds": 5}, "seeds=5 is not possible: give a list of seeds, such as range(5)"),
        ({}, {"seeds": []}, "seeds=[] is not possible"),
        ({}, {"seeds": [-1]}, "seeds=[-1] is not possible"),
        ({}, {"seeds": "12"}, "seeds=['1', '2'] is not possible"),
        ({}, {"workers": -1}, "workers=-1"),
        ({"method": [type("Own", (fedqhd.Method,), {"name": "own"}), "fedqhd"]}, {}, "exists only in this process"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_runs(vary, settings, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedqhd.FedQHDError) as error:
        fedqhd.sweep(vary, preset="plain", **{"seeds": [0], **settings})
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_compared_and_what_fails_loses_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.py").write_text("def env():\n    raise RuntimeError('no such robot')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    vary = {"env": ["CartPole-v1", "broken:env"], "method": ["fedqhd", "independent-qhd"]}
    common = {**SMALL, "setting": "heterogeneous", "preset": "plain", "out": "sweep"}
    found = fedqhd.sweep(vary, seeds=[0, 1], **common)
    assert found.by == ("method",)
    assert found.table()["group"].tolist() == ["fedqhd", "independent-qhd"]
    assert found.table()["seeds"].tolist() == [2, 2]
    failed = [note for note in found.notes if note.startswith("Without a result: env=broken:env")]
    assert len(failed) == 4
    assert "no such robot" in failed[0]
    said = capsys.readouterr().out
    assert "env=broken:env, fedqhd, seed 0: FAILED" in said
    assert "env=CartPole-v1, fedqhd, seed 1: final" in said
    # The folder can be compared later, with the same result.
    again = fedqhd.compare("sweep")
    assert again.table().equals(found.table())
    assert again.notes == ["4 runs in sweep did not finish and are left out."]
    with pytest.raises(fedqhd.FedQHDError, match=r"holds another run \(episodes=6 differs"):
        fedqhd.sweep(vary, seeds=[0, 1], **{**common, "episodes": 6})
    with pytest.raises(fedqhd.FedQHDError, match=r"no run of the sweep has finished: .*no such robot"):
        fedqhd.sweep({"env": "broken:env"}, seeds=[0], **{**common, "out": "other"})


def test_an_interrupted_sweep_goes_on_without_repeating_what_is_done(tmp_path):
    settings = {**SMALL, "episodes": 40, "preset": "plain", "out": "sweep", "setting": "heterogeneous", "workers": 1}
    script = (
        f"import fedqhd; found = fedqhd.sweep({{'gamma': [0.9, 0.99]}}, seeds=[0, 1], **{settings}); "
        "print(found.table()['seeds'].tolist())"
    )
    command = [sys.executable, "-u", "-c", script]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    read_until(process, "gamma=0.9, seed 0: final")
    process.send_signal(signal.SIGINT)
    _, wrong = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in wrong
    assert "continues every run from its last round" in wrong
    done = {file: file.stat().st_mtime_ns for file in tmp_path.glob("sweep/*/*/summary.json")}
    assert 1 <= len(done) < 4
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert f"{len(done)} runs are done, {4 - len(done)} to go" in again.stdout
    assert again.stdout.endswith("[2, 2]\n")
    assert all(file.stat().st_mtime_ns == mark for file, mark in done.items())
