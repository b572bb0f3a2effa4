"""Run folders that somebody else made: every command reads them or says in one sentence what is wrong."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from conftest import ROOT, tiny
from fedqhd.api.compare import compare
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.outcome import training_returns
from fedqhd.runs.run import train
from fedqhd.runs.summary import FIELDS, read_summary, summary_fault
from fedqhd.ui.cli import main

JUNK = [
    None, True, -1, 0, 1.5, 10**400, float("nan"), float("inf"), 1e308, "", "x", "\x1b[2J", "9" * 10**5, [], [1],
    [[1, 2]], [None], {}, {"a": []}, {"refused": {"0/x": "y"}}, {"odd": {}}, [float("nan")] * 2,
]  # fmt: skip
COMMANDS = ("compare {}", "compare {} --out {}/out", "train --resume --out {}", "train --extend 2 --out {}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(tiny(folder / "a", episodes=4, round_episodes=2))
    return folder / "a"


def spoilt(summary, name, value):
    changed = {k: v for k, v in summary.items() if k != name}
    return changed if value is ... else {**changed, name: value}


def test_a_summary_is_read_as_it_was_written(made):
    summary = json.loads((made / "summary.json").read_text())
    assert read_summary(made) == summary
    assert {name for name in summary if name not in FIELDS} == set()
    assert summary_fault({**summary, "of a later version": [1]}) == ""


def test_published_summaries_are_read():
    for file in sorted((ROOT / "results" / "runs").rglob("*.jsonl"))[::5]:
        for line in file.read_text().splitlines():
            assert summary_fault(json.loads(line)["summary"]) == ""


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_whatever_a_field_of_a_summary_is_nothing_fails_but_in_a_sentence(made, tmp_path, name):
    summary = json.loads((made / "summary.json").read_text())
    for value in (..., *JUNK):
        wrong = summary_fault(spoilt(summary, name, value))
        if not wrong:
            continue
        assert "\n" not in wrong
        assert len(wrong) < 400
        (tmp_path / "summary.json").write_text(json.dumps(spoilt(summary, name, value)))
        with pytest.raises(FedQHDError, match=r"summary.json is damaged or not a FedQHD file .it"):
            read_summary(tmp_path)
        assert name in wrong or "different numbers of clients" in wrong


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "3", '"x"', "[" * 10**5, "\xff", '{"env": 1', "{}"])
def test_a_file_that_is_no_summary_is_refused(tmp_path, text):
    (tmp_path / "summary.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FedQHDError, match=r"summary.json is damaged"):
        read_summary(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_in_one_sentence_what_is_wrong_with_a_run(made, tmp_path, capsys, command):
    summary = json.loads((made / "summary.json").read_text())
    run = tmp_path / "run"
    for name, value in (("episodes", "x"), ("greedy_return", [[1]]), ("clients", ...), ("replies", {"odd": {"0": 1}}),
                        ("final_return_per_client", [1.0])):  # fmt: skip
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(made, run)
        (run / "summary.json").write_text(json.dumps(spoilt(summary, name, value)))
        assert main(command.format(run, tmp_path).split()) == 2
        said = capsys.readouterr().err
        assert said.startswith("fedqhd: ")
        assert said.count("\n") == 1


LINE = {"round": 0, "client": 0, "episode": 0, "return": 1.0, "length": 5, "epsilon": 1.0}


@pytest.mark.parametrize("name", ["client", "episode", "return"])
@pytest.mark.parametrize("value", [None, True, -1, 1.5, 10**400, float("nan"), float("inf"), "1", [1], {}, ...])
def test_metrics_hold_numbered_episodes_with_finite_returns_or_are_refused(made, tmp_path, name, value):
    if name == "return" and value in (-1, 1.5):
        return
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(LINE)}\n{json.dumps(spoilt(LINE, name, value))}\n")
    with pytest.raises(FedQHDError, match=r"metrics.jsonl is damaged"):
        training_returns(tmp_path, 1, 2)


def test_a_run_without_episodes_is_refused_by_comparisons(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    for text in ("", "[]\n", "[" * 10**5 + "\n", "3\n"):
        (tmp_path / "run" / "metrics.jsonl").write_text(text)
        with pytest.raises(FedQHDError, match=r"metrics.jsonl is damaged"):
            compare(tmp_path / "run")
    assert np.isfinite(training_returns(made, 2, 4)).all()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"rows": 3}', '{"rows": [1]}', '{"rows": [{}]}', '{"rows": [{"env": [[]], "method": 3}]}']
)
def test_results_of_somebody_else_are_reported_or_refused_in_a_sentence(tmp_path, capsys, text):
    (tmp_path / "main.json").write_text(text)
    words = f"report --results {tmp_path} --out {tmp_path}/out --markdown {tmp_path}/R.md --runs {tmp_path}/runs"
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("fedqhd: ")
    assert said.count("\n") == 1
