"""What is published stays published: partial and altered runs, tables that say what they lack, studies of a user."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from test_reproduce import TINY

from conftest import ROOT
from fedqhd.api import training as api
from fedqhd.core.errors import FedQHDError
from fedqhd.report.page import page
from fedqhd.report.tables import results_markdown
from fedqhd.runs import outcome
from fedqhd.studies import plan as plans
from fedqhd.studies import registry, store
from fedqhd.studies.cells import CellStudy
from fedqhd.studies.plan import Plan, separate_altered
from fedqhd.studies.presets import parse_set
from fedqhd.studies.reproduce import reproduce
from invented import record
from processes import fedqhd

MINE = """
from fedqhd.studies.cells import CellStudy

class Mine(CellStudy):
    name = "mine"
    about = "two dimensions on CartPole"
    title = "How wide?"
    text = "two clients, two episodes."
    seeds = (0, 1)
    cells = {
        f"D = {D}": {"env": "CartPole-v1", "clients": 2, "episodes": 2, "round_episodes": 1, "dims": [D], "anchors": 20,
                     "eval_episodes": 1}
        for D in (20, 30)
    }
"""


class Small(CellStudy):
    """One cell, on three seeds."""

    name = "small"
    about = "a study of this test"
    title = "A small study"
    text = "two clients."
    cells = {"only": {"env": "CartPole-v1", "clients": 2, "episodes": 2, "round_episodes": 1, "dims": [20],  # noqa: RUF012
                      "anchors": 20, "eval_episodes": 1}}  # fmt: skip


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make the small study, in this process, as code of a commit: (what it said, the bytes of its result file)."""

    def made(seeds=None, at="abc1234", study=Small, **others):
        for module in (plans, outcome):
            monkeypatch.setattr(module, "commit", lambda: at)
        said = []

        def schedule(all_series, total):
            for series in all_series:
                for job in series:
                    if job.summary() is None:
                        said.append(f"run {job.config.seed}")
                        api.train(job.config)
            return 0

        plan = Plan(seeds=seeds, out=tmp_path / "runs", overrides=others)
        reproduce(study(), plan, tmp_path / "results", schedule, said.append)
        file = tmp_path / "results/small.json"
        return "\n".join(said), file.read_bytes() if file.exists() else None

    return made


class Measured(Small):
    """The same, with something that needs the models."""

    measures = True

    def measure(self, run):
        return len(list((run.job.folder / "models").iterdir()))

    def row(self, cell, own, runs):
        return {**super().row(cell, own, runs), "models": [run.measured(self.name) for run in runs]}


def rows(folder):
    return store.read_rows(folder / "results", "small")


def test_later_runs_add_to_the_archive_and_complete_the_table(make, tmp_path):
    make([0])
    assert [r["seeds"] for r in rows(tmp_path)] == [[0]]
    assert "| only (1 of 3 seeds) |" in (tmp_path / "results/small.md").read_text()
    make([2])
    assert [r["seeds"] for r in rows(tmp_path)] == [[0, 2]]
    shutil.rmtree(tmp_path / "runs")
    said, _ = make()
    assert "2 runs come from" in said
    assert [r["seeds"] for r in rows(tmp_path)] == [[0, 1, 2]]
    assert "of 3 seeds" not in (tmp_path / "results/small.md").read_text()
    lines = (tmp_path / "results/runs/small/only.jsonl").read_text().splitlines()
    assert [(x["seed"], x["commit"]) for x in map(json.loads, lines)] == [(k, "abc1234") for k in range(3)]


def test_what_needs_models_is_measured_once_and_runs_without_them_are_made_again(make, tmp_path):
    make([0])
    shutil.rmtree(tmp_path / "runs")
    said, _ = make([0], study=Measured)
    assert "run 0" in said  # the archive has no models
    assert rows(tmp_path)[0]["models"] == [2]
    (line,) = (tmp_path / "results/runs/small/only.jsonl").read_text().splitlines()
    assert json.loads(line)["extra"] == {"small": 2}
    shutil.rmtree(tmp_path / "runs")
    said, _ = make([0], study=Measured)
    assert "run 0" not in said
    assert rows(tmp_path)[0]["models"] == [2]


def test_an_incomplete_row_never_replaces_a_fuller_one_and_a_complete_one_does(make, tmp_path):
    _, before = make()
    for folder in ("runs", "results/runs"):  # as if other settings had been tuned: none of the old runs counts
        shutil.rmtree(tmp_path / folder)
    said, after = make([0])
    assert after == before
    assert "kept the stored row instead of a new one: only: 1 of 3 seeds, but 3 are stored" in said
    stored = rows(tmp_path)
    store.write(tmp_path / "results", Small(), [{**stored[0], "commit": "old"}])
    make()
    assert rows(tmp_path)[0]["commit"] == "abc1234"


def test_altered_settings_go_to_a_folder_of_their_own_and_say_so(make, tmp_path):
    _, before = make()
    said, after = make(episodes=3)
    assert after == before
    assert "altered: episodes=3: kept apart" in said
    altered = tmp_path / "results/altered/episodes=3"
    assert store.read(altered, "small")["altered"] == "altered: episodes=3"
    assert (altered / "small.md").read_text().startswith("**altered: episodes=3**\n")
    assert len((tmp_path / "results/runs/small/only.jsonl").read_text().splitlines()) == 3
    assert len((altered / "runs/small/only.jsonl").read_text().splitlines()) == 3
    make(episodes=4)
    assert len(list((tmp_path / "results/altered").iterdir())) == 2  # two alterations do not mix


def test_uncommitted_code_goes_to_a_folder_of_its_own_and_says_so(make, tmp_path):
    _, before = make([0])
    _, after = make(at="abc1234-changed")
    assert after == before
    altered = tmp_path / "results/altered/from-uncommitted-code"
    found = store.read(altered, "small")
    assert found["altered"] == "from uncommitted code"
    assert found["rows"][0]["seeds"] == [0, 1, 2]
    assert found["rows"][0]["commit"] == "abc1234, abc1234-changed"  # seed 0 is that of the archive
    assert [x["seed"] for x in map(json.loads, (altered / "runs/small/only.jsonl").open())] == [1, 2]


def test_code_that_changes_while_it_runs_is_not_published(make, tmp_path, monkeypatch):
    make([0])
    real = api.train
    monkeypatch.setattr(api, "train", lambda config: (monkeypatch.setattr(outcome, "commit", lambda: "x-changed"),
                                                      real(config)))  # fmt: skip
    said, _ = make([0, 1])
    assert "1 runs were made by uncommitted code" in said
    assert [r["seeds"] for r in rows(tmp_path)] == [[0]]


def test_the_command_leaves_published_results_alone(tmp_path):
    """The one that used to write one seed of ten episodes over ten seeds of six hundred."""
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("altered", "policies"))
    before = {p: p.read_bytes() for p in (tmp_path / "results").rglob("*") if p.is_file()}
    part = ["--preset", "tuned", "--methods", "fedqhd", "--envs", "CartPole-v1", "--settings", "homogeneous"]
    others = [*TINY[1:], "episodes=10"]
    done = fedqhd("reproduce", "main", *part, "--seeds", 0, "--workers", 1, "--set", *others, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept apart from what is published" in done.stdout
    assert {p: p.read_bytes() for p in before} == before
    new = [p for p in (tmp_path / "results").rglob("*") if p.is_file() and p not in before]
    assert all("altered" in p.relative_to(tmp_path).parts for p in new)
    (file,) = [p for p in new if p.name == "main.json"]
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["seeds"], row["episodes"]) == (1, 10)
    report = fedqhd("report", "--results", file.parent, cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "RESULTS.md").read_text().startswith("**altered: clients=2")
    assert "1 of 10 seeds" in (tmp_path / "RESULTS.md").read_text()
    assert "<strong>altered: clients=2" in (tmp_path / "report/index.html").read_text()


def test_a_report_of_published_results_has_no_mark(tmp_path):
    store.write(tmp_path, registry.study("main"), [record("tuned", c) for c in plans.cells()[:3]])
    assert results_markdown(tmp_path).startswith("# Results")
    assert "altered" not in page(tmp_path)[0]


def test_other_tuned_settings_are_an_alteration(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "commit", lambda: "abc1234")
    assert Plan().alterations == []
    assert Plan(seeds=[0], envs=["CartPole-v1"]).alterations == []  # a part is no alteration
    assert Plan(tuned=tmp_path).alteration == f"altered: tuned settings of {tmp_path}"
    plan, results = separate_altered(Plan(overrides=parse_set(TINY)), Path("results"))
    assert len(results.name) < 120
    again = dataclasses.replace(plan, out=Path("runs/reproduce"), overrides={**parse_set(TINY), "widths": [9]})
    assert separate_altered(again, Path("results"))[1] != results


@pytest.mark.slow
def test_a_study_of_the_users_own(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    done = fedqhd("reproduce", "mine:Mine", "--workers", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("results/**/mine.json")
    assert [(r["cell"], r["seeds"]) for r in json.loads(file.read_text())["rows"]] == [
        ("D = 20", [0, 1]), ("D = 30", [0, 1])]  # fmt: skip
    table = file.with_suffix(".md").read_text()
    assert "# How wide?" in table
    assert "| D = 30 |" in table
    assert len(list(file.parent.glob("runs/mine/*.jsonl"))) == 2
    again = fedqhd("reproduce", "mine:Mine", "--workers", 1, cwd=tmp_path)
    assert "4 runs are done, 0 to go" in again.stdout


def test_a_result_file_of_another_form_is_refused(tmp_path):
    (tmp_path / "small.json").write_text("[]")
    with pytest.raises(FedQHDError, match=r"small.json is not a result file of this version"):
        store.read(tmp_path, "small")


def test_everything_that_is_committed_is_made_of_the_result_files(tmp_path):
    assert results_markdown(ROOT / "results") == (ROOT / "RESULTS.md").read_text()
    for study in registry.every():
        committed = ROOT / "results" / f"{study.name}.json"
        found = store.read_rows(ROOT / "results", study.name)
        assert len({store.name_of(study, r) for r in found}) == len(found)
        store.write(tmp_path, study, found)
        assert (tmp_path / committed.name).read_bytes() == committed.read_bytes()
        assert not any(study.incomplete(r) for r in found)
        table = store.write_table(tmp_path, study)
        assert (table is None) == study.in_results
        if table:
            assert table.read_bytes() == committed.with_suffix(".md").read_bytes()
