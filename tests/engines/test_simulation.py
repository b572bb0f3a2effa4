"""`fedqhd train --engine flower`: Flower's simulation, on Ray, with the real command line."""

from __future__ import annotations

import json
import os
import signal

import pytest

pytest.importorskip("ray")

from fedqhd.ui.cli import main
from processes import FEDQHD, PATIENCE, end, gone_pid, kill_tree, listening, read_until, start, tree

pytestmark = pytest.mark.federation

RUN = [
    "train", "--env", "CartPole-v1", "--setting", "heterogeneous", "--dims", "64", "96", "--anchors", "40",
    "--eval-episodes", "2", "--round-episodes", "3",
]  # fmt: skip


def train(out, *more):
    return main([*RUN, "--out", str(out), *more])


def files(run):
    names = ["metrics.jsonl", *(f"models/{p.name}" for p in sorted((run / "models").glob("*.npz")))]
    return {name: (run / name).read_bytes() for name in names}


def outcome(run):
    """The summary but for its clocks."""
    summary = json.loads((run / "summary.json").read_text())
    return {k: v for k, v in summary.items() if not k.endswith("_seconds")}


@pytest.mark.parametrize(
    "more",
    [
        ("--clients", "3", "--episodes", "9", "--participation", "0.7", "--anchor-source", "teacher"),
        ("--clients", "24", "--episodes", "3", "--attack", "noise", "--learner", "online"),
    ],
    ids=["some take part", "many"],
)
def test_the_simulation_gives_the_files_of_one_process(tmp_path, more):
    for engine in ("local", "flower"):
        assert train(tmp_path / engine, *more, "--engine", engine) == 0
    assert files(tmp_path / "local") == files(tmp_path / "flower")
    assert outcome(tmp_path / "local") == outcome(tmp_path / "flower")
    assert {p.name for p in (tmp_path / "flower").iterdir()} == {p.name for p in (tmp_path / "local").iterdir()}


def test_the_simulation_gives_the_files_of_one_process_in_rounds_of_steps(tmp_path):
    more = ("--clients", "3", "--steps", "200", "--round-steps", "45", "--anchor-source", "teacher")
    for engine in ("local", "flower"):
        out = tmp_path / engine
        assert main([*RUN[:-2], *more, "--callbacks", "evaluate", "--engine", engine, "--out", str(out)]) == 0
    assert files(tmp_path / "local") == files(tmp_path / "flower")
    assert outcome(tmp_path / "local") == outcome(tmp_path / "flower")
    local, flower = (tmp_path / engine / "evaluations.jsonl" for engine in ("local", "flower"))
    assert local.read_text() == flower.read_text()


def test_masked_replies_train_as_open_ones_do(tmp_path):
    more = ("--clients", "3", "--episodes", "6", "--aggregate", "mean")
    assert train(tmp_path / "open", *more, "--engine", "local") == 0
    assert train(tmp_path / "masked", *more, "--secure", "secagg+") == 0
    open_, masked = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("open", "masked")
    )
    # Until the first teacher, which is off by a rounding, nothing differs.
    assert [row for row in masked if row["round"] == 0] == [row for row in open_ if row["round"] == 0]
    assert len(masked) == len(open_) == 18
    assert outcome(tmp_path / "masked")["replies"] == outcome(tmp_path / "open")["replies"]


def test_a_simulation_that_is_killed_goes_on_in_any_engine(tmp_path):
    more = ("--clients", "3", "--episodes", "60")
    train(tmp_path / "whole", *more, "--engine", "local")
    out = tmp_path / "killed"
    run = start(FEDQHD, *RUN, *more, "--engine", "flower", "--out", out)
    try:
        read_until(run, "round 3/")
    finally:
        kill_tree(run)
    assert (out / "nodes").exists()
    run = start(FEDQHD, "train", "--resume", "--engine", "local", "--out", out)
    try:
        read_until(run, "round 6/")
    finally:
        kill_tree(run)
    assert main(["train", "--resume", "--engine", "flower", "--out", str(out)]) == 0
    assert files(out) == files(tmp_path / "whole")


def test_it_listens_on_loopback_alone_and_ctrl_c_leaves_nothing_behind(tmp_path):
    run = start(FEDQHD, *RUN, "--clients", "3", "--engine", "flower", "--out", tmp_path / "run")
    try:
        read_until(run, "round 2/")
        pids = tree(run)
        assert len(pids) > 3
        assert listening(pids) == {"127.0.0.1"}
        os.killpg(run.pid, signal.SIGINT)
        said = run.communicate(timeout=PATIENCE)[0]
        assert run.returncode == 130
        assert "resume with: fedqhd train --resume" in said
        assert "Traceback" not in said
        assert all(gone_pid(pid) for pid in pids)
    finally:
        end(run)
