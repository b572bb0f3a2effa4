"""Rows and tables of our own studies, of one small run that stands for all of theirs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from conftest import ROOT, tiny
from fedqhd.api import training as api
from fedqhd.studies import registry, store
from fedqhd.studies.catalogue import own_envs
from fedqhd.studies.catalogue.attacks import honest_outcome
from fedqhd.studies.catalogue.exchange_error import ExchangeError
from fedqhd.studies.catalogue.learners import Learners
from fedqhd.studies.cells import CellStudy
from fedqhd.studies.plan import Plan
from fedqhd.studies.study import Run, command

OURS = [s for s in registry.every() if isinstance(s, CellStudy)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two clients with different encoders that learn by least squares."""
    config = tiny(
        tmp_path_factory.mktemp("cells") / "run", setting="heterogeneous", learner="least-squares", episodes=4
    )
    summary = api.train(config)
    return Run(SimpleNamespace(config=config, folder=config.folder), summary)


@pytest.mark.parametrize("study", OURS, ids=lambda s: s.name)
def test_a_row_of_each_cell_has_its_key_and_stands_in_the_table(study, run, monkeypatch):
    monkeypatch.setattr(own_envs, "random_return", lambda env: 0.25)
    rows = [study.row(cell, own, [run]) for cell, own in study.cells.items()]
    assert len({tuple(r[k] for k in study.key) for r in rows}) == len(rows) == len(study.cells)
    assert [study.order(r) for r in rows] == sorted({study.order(r) for r in rows})
    for row, own in zip(rows, study.cells.values(), strict=True):
        assert row["command"].startswith("fedqhd train --preset plain --env")
        assert study.expected_seeds(row) == len(study.seeds_of(own))
        assert row["commit"] == run.summary["commit"]
    text = "\n".join(study.table(rows))
    assert text.startswith("# ")
    marks = {study.incomplete(r) for r in rows}
    assert all(mark in text for mark in marks)
    assert ("" in marks) == (study.seeds == (0,))


@pytest.mark.parametrize("study", OURS, ids=lambda s: s.name)
def test_first_seeds_come_first_and_every_run_has_a_folder_of_its_own(study, tmp_path):
    jobs = study.jobs(Plan(out=tmp_path))
    assert len({job.folder for job in jobs}) == len(jobs)
    seeds = [job.config.seed for job in jobs]
    assert seeds == sorted(seeds)
    assert {job.folder.relative_to(tmp_path).parts[0] for job in jobs} == {study.name}


def test_the_commands_of_cells_are_those_of_the_result_files():
    """So that what is repeated is what was run; flags may come in another order."""

    def flags(text):
        return sorted(flag.strip() for flag in text.split("--"))

    for study in OURS:
        stored = [flags(r["command"]) for r in store.read_rows(ROOT / "results", study.name)]
        assert [flags(command(own)) for own in study.cells.values()] == stored


def test_liars_do_not_count(run):
    liar = Run(run.job, {**run.summary, "liars": [1]})
    row = honest_outcome(liar)
    assert row["return"] == pytest.approx(run.returns()[0].mean(), abs=0.06)
    assert row["greedy_return"] == pytest.approx(run.summary["greedy_return_per_client"][0], abs=0.06)


def test_the_error_of_an_exchange_is_measured_for_each_client(run, tmp_path):
    found = ExchangeError().measure(run)
    assert len(found["effective_rank"]) == len(found["policy, after"]) == 2
    alone = Run(SimpleNamespace(config=run.job.config, folder=tmp_path), run.summary)
    assert ExchangeError().measure(alone) == {}


def test_learners_are_drawn(run, tmp_path):
    study = Learners()
    rows = [study.row(cell, own, [run]) for cell, own in study.cells.items()]
    (picture,) = study.charts(rows, tmp_path)
    assert picture.stat().st_size > 10_000
