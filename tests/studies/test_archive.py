"""Finished runs, packed to be committed and unpacked where they were not run."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from conftest import ROOT, tiny
from fedqhd.core.lines import read_lines
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import training_returns
from fedqhd.runs.rounds_log import cpu_seconds_until
from fedqhd.runs.run import train
from fedqhd.studies import plan as plans
from fedqhd.studies import store
from fedqhd.studies.archive import Archive, find, forget_without_models, measured_file, non_default_settings
from fedqhd.studies.catalogue.cost import Cost
from fedqhd.studies.catalogue.main import main_jobs
from fedqhd.studies.catalogue.scalability import Scalability
from fedqhd.studies.catalogue.tune import tuned_cells, write_record
from fedqhd.studies.plan import Plan
from fedqhd.studies.pool import Job, single
from fedqhd.studies.presets import Cell
from fedqhd.studies.reproduce import reproduce


@pytest.fixture
def job(tmp_path):
    """A finished run of two clients, three rounds."""
    config = tiny(tmp_path / "out/tuned/cell/0-abc", episodes=5, round_episodes=2)
    train(config)
    return Job("a run", "cell", config)


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "runs", tmp_path / "out", published=False)


def test_an_archived_run_says_what_its_folder_said(job, archive, tmp_path):
    before = job.summary(), training_returns(job.folder, 2, 5), cpu_seconds_until(job.folder, 3)
    archive.store([job])
    (line,) = read_lines(tmp_path / "runs/tuned/cell.jsonl")
    assert (line["seed"], line["commit"]) == (job.config.seed, before[0]["commit"])
    assert line["settings"]["episodes"] == 5
    assert "gamma" not in line["settings"]  # as by default
    shutil.rmtree(job.folder)
    assert job.summary() is None
    assert archive.restore([job]) == 1
    assert archive.restore([job]) == 0  # it is here
    assert job.summary() == before[0]
    np.testing.assert_allclose(training_returns(job.folder, 2, 5), before[1], atol=0.05)
    assert cpu_seconds_until(job.folder, 3) == before[2] > 0


def test_what_is_archived_stays_as_it_is(job, archive, tmp_path):
    archive.store([job])
    file = tmp_path / "runs/tuned/cell.jsonl"
    first = file.read_bytes(), file.stat().st_mtime_ns
    archive.store([job])
    assert (file.read_bytes(), file.stat().st_mtime_ns) == first
    # A run of other settings or another seed is another line; what was measured later joins its run.
    other = Job("another", "cell", tiny(tmp_path / "out/tuned/cell/10-def", episodes=2, seed=10))
    train(other.config)
    measured_file(job.folder, "robustness").write_text('[{"damage": "zero"}]')
    archive.store([other, job])
    lines = read_lines(file)
    assert [line["seed"] for line in lines] == [0, 10]
    assert lines[0]["extra"] == {"robustness": [{"damage": "zero"}]}
    assert "extra" not in lines[1]
    measured_file(job.folder, "theory").write_text("1.5")
    archive.store([job])
    assert read_lines(file)[0]["extra"] == {"robustness": [{"damage": "zero"}], "theory": 1.5}


def test_a_run_is_archived_when_it_ends_and_not_before(job, archive, tmp_path):
    series = archive.archiving(single(job))
    assert next(series) is job
    assert not archive.home.exists()
    with pytest.raises(StopIteration):
        series.send(job.summary())
    assert (tmp_path / "runs/tuned/cell.jsonl").exists()
    failed = archive.archiving(single(Job("another", "cell", tiny(tmp_path / "out/tuned/other/0-fff"))))
    assert [next(failed).name, next(failed, None)] == ["another", None]
    assert not (tmp_path / "runs/tuned/other.jsonl").exists()
    shutil.rmtree(job.folder)
    assert next(archive.archiving(single(job))).summary() is None
    assert next(archive.archiving(single(job), restore=True)).summary()  # from the archive


def test_a_run_is_found_by_settings_and_seed_and_not_by_its_folder(job, archive, tmp_path):
    archive.store([job])
    same = Job("the same", "cell", tiny(tmp_path / "out/tuned/cell/renamed", episodes=5, round_episodes=2))
    assert archive.restore([same]) == 1
    assert same.summary() == job.summary()
    for others in ({"episodes": 6}, {"episodes": 5, "seed": 1}, {"episodes": 5, "gamma": 0.9}):
        other = Job("another", "cell", tiny(tmp_path / "out/tuned/cell/0-fff", **{"round_episodes": 2, **others}))
        assert archive.restore([other]) == 0
        assert other.summary() is None


def test_a_run_made_again_by_another_commit_is_another_line_and_counts(job, archive, tmp_path):
    archive.store([job])
    first = job.summary()
    (job.folder / "summary.json").write_text(json.dumps({**first, "commit": "later", "greedy_return": 9.0}))
    archive.store([job])
    assert [x["commit"] for x in read_lines(tmp_path / "runs/tuned/cell.jsonl")] == [first["commit"], "later"]
    shutil.rmtree(job.folder)
    archive.restore([job])
    assert job.summary()["greedy_return"] == 9.0


def test_every_committed_run_is_found_by_the_settings_of_its_study():
    """A part of what is committed: it belongs to the settings that are."""
    archive = Archive(ROOT / "results/runs", Plan().out)
    main = main_jobs(Plan(envs=["MountainCar-v0"], methods=["fedqhd", "fedavg-dqn"]))
    for job in (*main, *Scalability().jobs(Plan(envs=["CartPole-v1"]))):
        line = find(read_lines(archive.home / archive.place(job)), job.config)
        assert line is not None, job.name
        assert line["summary"]["clients"] == job.config.clients


def test_runs_from_uncommitted_code_are_not_published(job, tmp_path):
    published = Archive(tmp_path / "runs", tmp_path / "out")
    summary = {**job.summary(), "commit": "abc1234-changed"}
    (job.folder / "summary.json").write_text(json.dumps(summary))
    published.store([job])
    assert not published.home.exists()
    assert published.set_aside([job], tmp_path / "aside") == 1
    assert job.summary() is None  # so that it is run again
    assert (tmp_path / "aside/tuned/cell/0-abc/summary.json").exists()
    assert published.set_aside([job], tmp_path / "aside") == 0


def test_runs_without_models_are_forgotten_where_models_are_needed(job, archive):
    archive.store([job])
    forget_without_models([job], "robustness")
    assert job.summary()
    shutil.rmtree(job.folder / "models")
    forget_without_models([job], "robustness")
    assert job.summary() is None
    archive.restore([job])
    measured_file(job.folder, "robustness").write_text("[]")
    forget_without_models([job], "robustness")
    assert job.summary()  # measured already
    forget_without_models([job], "theory")
    assert job.summary() is None  # by another study


def test_a_recorded_search_counts_as_made(tmp_path):
    cell = Cell("fedqhd", "CartPole-v1", "homogeneous")
    assert tuned_cells(tmp_path) == set()
    write_record(tmp_path, cell, [], {"learner": "online"})
    assert tuned_cells(tmp_path) == {cell}
    assert resolve({"method": cell.method, "env": cell.env}).setting == cell.setting


def test_cost_counts_every_archived_seed_and_runs_none(tmp_path, monkeypatch):
    """With what is committed: it belongs to the settings that are."""
    monkeypatch.setattr(plans, "commit", lambda: "abc1234")
    file = "runs/tuned/MountainCar-v0-fedqhd-homogeneous.jsonl"
    (tmp_path / "results" / file).parent.mkdir(parents=True)
    shutil.copy(ROOT / "results" / file, tmp_path / "results" / file)
    plan = Plan(["tuned"], ["fedqhd"], ["MountainCar-v0"], ["homogeneous"], out=tmp_path / "out")
    reproduce(Cost(), plan, tmp_path / "results", lambda all_series, total: 0, print)
    (row,) = store.read_rows(tmp_path / "results", "cost")
    assert row["seeds"] == 10  # of which three would have been run


def test_a_damaged_line_of_an_archive_is_not_passed_over(tmp_path):
    (tmp_path / "runs.jsonl").write_text('{"seed": 1}\n{"seed": 2}')  # without the last line end, as an editor may save
    assert [line["seed"] for line in read_lines(tmp_path / "runs.jsonl")] == [1, 2]
    (tmp_path / "runs.jsonl").write_text('{"seed": 1}\n{"seed":')
    with pytest.raises(ValueError, match="Expecting value"):
        read_lines(tmp_path / "runs.jsonl")


def test_a_run_by_steps_is_not_taken_for_one_of_the_default_episodes():
    by_episodes = resolve({"env": "Acrobot-v1"}, preset="plain")
    by_steps = resolve({"env": "Acrobot-v1", "steps": 100, "round_steps": 10}, preset="plain")
    line = {"seed": 0, "commit": "x", "settings": non_default_settings(by_steps)}
    assert find([line], by_episodes) is None
    assert find([line], by_steps) == line
