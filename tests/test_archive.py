"""Finished runs, packed to be committed and unpacked where they were not run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.runs.rounds_log import cpu_seconds_until
from fedqhd.runs.run import train
from fedqhd.studies import archive
from fedqhd.studies.pool import Job
from fedqhd.studies.presets import Cell
from fedqhd.studies.tune import searched, write_record
from test_cli import fedqhd

ROOT = Path(__file__).parent.parent


@pytest.fixture
def job(tmp_path):
    """A finished run of two clients, three rounds."""
    config = tiny(tmp_path / "out/tuned/cell/0-abc", episodes=5, round_episodes=2)
    train(config)
    return Job("a run", "cell", config)


def test_an_archived_run_says_what_its_folder_said(job, tmp_path):
    before = job.summary(), training_returns(job.folder, 2, 5), cpu_seconds_until(job.folder, 3)
    home, out = tmp_path / "runs", tmp_path / "out"
    archive.store(home, out, [job])
    (line,) = (home / "tuned/cell.jsonl").read_text().splitlines()
    assert json.loads(line)["run"] == "0-abc"
    for file in sorted(job.folder.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert job.summary() is None
    assert archive.restore(home, out, [job]) == 1
    assert archive.restore(home, out, [job]) == 0  # it is here
    assert job.summary() == before[0]
    np.testing.assert_allclose(training_returns(job.folder, 2, 5), before[1], atol=0.05)
    assert cpu_seconds_until(job.folder, 3) == before[2] > 0


def test_what_is_archived_stays_as_it_is(job, tmp_path):
    home, out = tmp_path / "runs", tmp_path / "out"
    archive.store(home, out, [job])
    file = home / "tuned/cell.jsonl"
    first = file.read_bytes(), file.stat().st_mtime_ns
    archive.store(home, out, [job])
    assert (file.read_bytes(), file.stat().st_mtime_ns) == first
    # A run of other settings or another seed is another line; what was found out later joins its run.
    other = Job("another", "cell", tiny(tmp_path / "out/tuned/cell/10-def", episodes=2))
    train(other.config)
    (job.folder / archive.EXTRA).write_text('[{"damage": "zero"}]')
    archive.store(home, out, [other, job])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["run"] for line in lines] == ["0-abc", "10-def"]
    assert lines[0]["extra"] == [{"damage": "zero"}]
    assert "extra" not in lines[1]


def test_a_run_is_archived_when_it_ends_and_not_before(job, tmp_path):
    home, out = tmp_path / "runs", tmp_path / "out"
    strand = archive.kept(home, out, job)
    assert next(strand) is job
    assert not home.exists()
    with pytest.raises(StopIteration):
        strand.send(job.summary())
    assert (home / "tuned/cell.jsonl").exists()
    failed = archive.kept(home, out, Job("another", "cell", tiny(tmp_path / "out/tuned/other/0-fff")))
    assert [next(failed).name, next(failed, None)] == ["another", None]
    assert not (home / "tuned/other.jsonl").exists()


def test_other_settings_are_another_run(job, tmp_path):
    archive.store(tmp_path / "runs", tmp_path / "out", [job])
    other = Job("another", "cell", tiny(tmp_path / "out/tuned/cell/0-fff", episodes=5))
    assert archive.restore(tmp_path / "runs", tmp_path / "out", [other]) == 0
    assert other.summary() is None


def test_runs_without_models_are_forgotten_where_models_are_needed(job, tmp_path):
    home, out = tmp_path / "runs", tmp_path / "out"
    archive.store(home, out, [job])
    archive.forget_without_models([job])
    assert job.summary()
    for file in (job.folder / "models").iterdir():
        file.unlink()
    (job.folder / "models").rmdir()
    archive.forget_without_models([job])
    assert job.summary() is None
    archive.restore(home, out, [job])
    (job.folder / archive.EXTRA).write_text("[]")
    archive.forget_without_models([job])
    assert job.summary()  # measured already


def test_a_recorded_search_counts_as_made(tmp_path):
    file, cell = tmp_path / "tuning.json", Cell("fedqhd", "CartPole-v1", "homogeneous")
    assert searched(file) == set()
    write_record(file, cell, [], {"learner": "online"})
    assert searched(file) == {cell}
    assert resolve({"method": cell.method, "env": cell.env}).setting == cell.setting


def test_cost_counts_every_archived_seed_and_runs_none(tmp_path):
    """With what is committed: it belongs to the settings that are."""
    file = "runs/tuned/MountainCar-v0-fedqhd-homogeneous.jsonl"
    (tmp_path / "results" / file).parent.mkdir(parents=True)
    shutil.copy(ROOT / "results" / file, tmp_path / "results" / file)
    cell = ("--methods", "fedqhd", "--envs", "MountainCar-v0", "--settings", "homogeneous", "--preset", "tuned")
    done = fedqhd("reproduce", "cost", "--collect", *cell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "results/cost.json").read_text())
    assert row["seeds"] == 10  # of which three would have been run
