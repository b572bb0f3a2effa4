"""Nothing is lost: killed, stopped, out of disk or with damaged files, a run goes on to the same bits."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import TESTS, tiny
from fedqhd.agents.policy import load_policy
from fedqhd.core import files
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import (
    DamagedFile,
    checkpoints,
    read_arrays,
    read_checkpoint,
    write_arrays,
    write_bytes,
    write_checkpoint,
)
from fedqhd.runs import checkpoint
from fedqhd.runs.callback import Training
from fedqhd.runs.outcome import training_returns
from fedqhd.runs.run import train

OPTIONS = {"setting": "heterogeneous", "learner": "online", "episodes": 10, "round_episodes": 2}
FOUND = "fedqhd train --resume --out"


def fedqhd(*args, **options):
    command = [str(Path(sys.executable).parent / "fedqhd"), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def outcome(folder):
    """What a run is about, to the bit."""
    return (folder / "metrics.jsonl").read_bytes(), [load_policy(folder, i).model.W.tobytes() for i in range(2)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(tiny(folder, **OPTIONS))
    return outcome(folder)


class Cut(Exception):
    """The moment a run dies."""


def cut_off(folder, monkeypatch, after, **options):
    """A run that dies when this many rounds are done and saved."""
    real = checkpoint.save

    def save_then_die(folder, done, *rest):
        real(folder, done, *rest)
        if done.rounds_done == after:
            raise Cut

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(Cut):
        train(tiny(folder, **{**OPTIONS, **options}))
    monkeypatch.setattr(checkpoint, "save", real)


def kill_at_random(folder, trials, seed):
    command = [sys.executable, str(TESTS / "killed.py"), str(folder), str(trials), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "all ended with the same bits" in done.stdout
    return int(done.stdout.split("runs killed ")[1].split()[0])


@pytest.mark.slow
def test_runs_killed_at_random_moments_end_with_the_same_bits(tmp_path):
    assert kill_at_random(tmp_path, 15, seed=1) >= 7


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, whole, monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(checkpoint, "save", lambda *a: (_ for _ in ()).throw(Cut))
        with pytest.raises(Cut):
            train(tiny(tmp_path, **OPTIONS))
    assert (tmp_path / "metrics.jsonl").read_bytes()  # written, but no checkpoint counts on it
    train(tiny(tmp_path, **OPTIONS), resume=True)
    assert outcome(tmp_path) == whole


def test_only_the_last_checkpoints_are_kept_and_one_after_the_end(tmp_path, monkeypatch):
    cut_off(tmp_path, monkeypatch, 4, keep=3)
    assert [p.name for p in checkpoints(tmp_path)] == [f"checkpoint-00000{k}.npz" for k in (4, 3, 2)]
    train(tiny(tmp_path, **OPTIONS, keep=3), resume=True)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-000005.npz"]


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        data[len(data) // 3] ^= 4
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["half", "empty", "one bit"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, whole, monkeypatch, caplog, how):
    cut_off(tmp_path, monkeypatch, 3)
    newest = checkpoints(tmp_path)[0]
    damage(newest, how)
    began = []
    monkeypatch.setattr(
        Training, "tell", lambda self, hook, *facts: hook == "on_start" and began.append(self.rounds_done)
    )
    with caplog.at_level(logging.WARNING):
        train(tiny(tmp_path, **OPTIONS), resume=True)
    assert began == [2]
    assert f"{newest} is damaged" in caplog.text
    assert outcome(tmp_path) == whole


def test_with_every_checkpoint_damaged_the_run_starts_again(tmp_path, whole, monkeypatch, caplog):
    cut_off(tmp_path, monkeypatch, 3)
    for path in checkpoints(tmp_path):
        damage(path, "half")
    train(tiny(tmp_path, **OPTIONS), resume=True)
    assert caplog.text.count("is damaged") == 2
    assert outcome(tmp_path) == whole


def reversion(path, version):
    arrays, about = read_arrays(path)
    write_arrays(path, arrays, {**about, "version": version})


def test_a_checkpoint_of_a_newer_version_is_not_taken_for_damaged(tmp_path, monkeypatch):
    cut_off(tmp_path, monkeypatch, 2)
    reversion(checkpoints(tmp_path)[0], files.VERSION + 1)
    with pytest.raises(FedQHDError, match=f"version {files.VERSION + 1}"):
        train(tiny(tmp_path, **OPTIONS), resume=True)


def test_a_checkpoint_of_an_older_version_is_said_and_the_run_starts_again(tmp_path, whole, monkeypatch, caplog):
    cut_off(tmp_path, monkeypatch, 1)
    reversion(checkpoints(tmp_path)[0], 1)
    train(tiny(tmp_path, **OPTIONS), resume=True)
    assert "written by an earlier FedQHD" in caplog.text
    assert outcome(tmp_path) == whole


def test_another_runs_checkpoint_is_refused(tmp_path, monkeypatch):
    cut_off(tmp_path, monkeypatch, 2)
    (tmp_path / "config.toml").unlink()
    with pytest.raises(FedQHDError, match="belongs to a run with other settings: remove it, or set overwrite"):
        train(tiny(tmp_path, **{**OPTIONS, "seed": 1}), resume=True)


def test_lost_lines_of_finished_rounds_are_noticed(tmp_path, monkeypatch):
    cut_off(tmp_path, monkeypatch, 3)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for bad in (b"".join(lines[:-1]), b"".join(lines).replace(b'"return": ', b'"return":  ', 1)):
        metrics.write_bytes(bad)
        with pytest.raises(FedQHDError, match=r"metrics.jsonl is damaged"):
            train(tiny(tmp_path, **OPTIONS), resume=True)
        assert metrics.read_bytes() == bad


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to know which file is synced")
@pytest.mark.parametrize("moment", ["part of a checkpoint", "metrics"])
def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path, whole, monkeypatch, moment):
    fsync, calls = os.fsync, []

    def full(handle):
        name = os.readlink(f"/proc/self/fd/{handle}")
        wanted = ".npz.part" if moment == "part of a checkpoint" else "metrics.jsonl"
        calls.append(name.endswith(wanted))
        if sum(calls) == 3 and calls[-1]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FedQHDError, match=rf"cannot be written \(No space left on device\).*{FOUND}"):
        train(tiny(tmp_path, **OPTIONS))
    monkeypatch.setattr(os, "fsync", fsync)
    assert not list(tmp_path.rglob("*.part"))  # its space is free again
    assert checkpoints(tmp_path)[0].name == "checkpoint-000002.npz"
    train(tiny(tmp_path, **OPTIONS), resume=True)
    assert outcome(tmp_path) == whole


def test_a_limit_on_the_size_of_files_is_like_a_full_disk(tmp_path):
    """No double of the system this time: the kernel itself will not write more than 30 kB to a file."""
    args = ["--env", "CartPole-v1", "--learner", "replay", "--clients", 2, "--episodes", 60, "--round-episodes", 2,
            "--dims", 64, "--batch-size", 4, "--eval-episodes", 2, "--out", tmp_path / "x"]  # fmt: skip
    train(tiny(tmp_path / "warm", learner="replay", dims=[64]))  # compiled kernels are files as well
    limit = 30_000
    small = fedqhd("train", *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    _, err = small.communicate(timeout=120)
    assert small.returncode == 2
    assert len(err.strip().splitlines()) == 1
    assert "cannot be written (File too large)" in err
    assert FOUND in err
    newest = checkpoints(tmp_path / "x")[0]
    assert read_arrays(newest)[1]["rounds_done"] == int(newest.stem[-6:]) >= 1
    rest = fedqhd("train", "--resume", "--out", tmp_path / "x")
    out, err = rest.communicate(timeout=120)
    assert rest.returncode == 0, err
    assert "resumed after round" in out


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_good_order(tmp_path, whole, stop):
    """In the middle of a run that would last long: one sentence, a checkpoint, and how to go on."""
    args = ["--env", "CartPole-v1", "--clients", 2, "--episodes", 100_000, "--round-episodes", 2, "--dims", 64]
    run = fedqhd("train", *args, "--learner", "online", "--out", tmp_path / "x")
    for _ in range(600):
        if len(checkpoints(tmp_path / "x")) == 2:
            break
        time.sleep(0.1)
    run.send_signal(stop)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 128 + stop
    (line,) = err.strip().splitlines()
    newest = int(checkpoints(tmp_path / "x")[0].stem[-6:])
    assert line.startswith(f"fedqhd: stopped by {stop.name} after round {newest},")
    assert line.endswith(f"resume with: {FOUND} {tmp_path / 'x'}")
    assert read_arrays(checkpoints(tmp_path / "x")[0])[1]["rounds_done"] == newest


def test_nothing_to_resume_is_said(tmp_path):
    run = fedqhd("train", "--resume", "--out", tmp_path / "none")
    _, err = run.communicate(timeout=30)
    assert run.returncode == 2
    assert "holds no run to continue" in err
    assert not (tmp_path / "none").exists()


def test_an_overwriting_run_that_dies_while_clearing_leaves_nothing_to_be_mixed_up(tmp_path, monkeypatch):
    """Whichever unlink is the last one: resuming the new run never goes on with the old one's checkpoint."""
    for stop_at in range(7):
        folder = tmp_path / str(stop_at)
        cut_off(folder, monkeypatch, 2)
        real, count = Path.unlink, []

        def unlink(self, missing_ok=False, real=real, count=count, stop_at=stop_at):
            count.append(self)
            if len(count) > stop_at:
                raise Cut
            real(self, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(Cut):
            train(tiny(folder, **{**OPTIONS, "seed": 1}), overwrite=True)
        monkeypatch.setattr(Path, "unlink", real)
        with pytest.raises(FedQHDError, match="seed=1 differs from the run to resume"):
            train(tiny(folder, **{**OPTIONS, "seed": 1}), resume=True)


def test_files_of_the_first_version_are_read(tmp_path):
    """They had no checksum of the whole: the zip's own stood for it."""
    note = json.dumps({"version": 1, "x": 3}).encode()
    np.savez(tmp_path / "old.npz", **{"about.json": np.frombuffer(note, np.uint8)}, W=np.arange(3.0))
    arrays, about = read_arrays(tmp_path / "old.npz")
    assert about["x"] == 3
    np.testing.assert_array_equal(arrays["W"], [0, 1, 2])


def test_a_file_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_bytes(path, b"old")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, name, lambda *a: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
            with pytest.raises(FedQHDError, match="Input/output error"):
                write_bytes(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]


FORGED = {
    "agent.memory.a": lambda x: x.astype(np.int64) + 10**6,
    "agent.memory.a ": lambda x: x.astype(np.int64) - 5,
    "agent.memory.s": lambda x: x[:, :1],
    "agent.W": lambda x: x[:3],
    "agent.rng": lambda x: x[:2],
    "rng": lambda x: x.astype(float) * np.nan,
    "agent.memory.at": lambda x: x + 10**9,
}


@pytest.mark.parametrize(
    ("learner", "name"),
    [*(("replay", name) for name in FORGED), *(("least-squares", name) for name in FORGED if not name.endswith(".at"))],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forged_checkpoint_is_refused_in_a_sentence(learner, name, tmp_path, monkeypatch):
    """Its checksum is right, but kernels would write where its numbers point."""
    change, name = FORGED[name], name.strip()
    cut_off(tmp_path, monkeypatch, 1, learner=learner)
    found = read_checkpoint(tmp_path)
    arrays = {**found.arrays, f"0/{name}": change(found.arrays[f"0/{name}"])}
    write_checkpoint(tmp_path, found.number, arrays, found.about, keep=1)
    with pytest.raises(DamagedFile, match="are not those of this run") as caught:
        train(tiny(tmp_path, **{**OPTIONS, "learner": learner}), resume=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "note", [{"totals": {}}, {"totals": None}, {"rounds_done": "1"}, {"rounds_done": -1}, {"server": 3}, {"server": {}}]
)
def test_a_checkpoint_with_a_malformed_note_is_refused_in_a_sentence(note, tmp_path, monkeypatch):
    cut_off(tmp_path, monkeypatch, 1)
    found = read_checkpoint(tmp_path)
    write_checkpoint(tmp_path, found.number, found.arrays, {**found.about, **note}, keep=1)
    with pytest.raises(DamagedFile, match="are not those of this run"):
        train(tiny(tmp_path, **OPTIONS), resume=True)


@pytest.mark.parametrize(
    "row",
    [
        {"client": 0, "episode": 10**12, "return": 1.0}, {"client": 10**9, "episode": 0, "return": 1.0},
        {"client": 0, "return": 1.0}, {"client": "0", "episode": 0, "return": 1.0}, [3], 7,
        {"client": 0, "episode": 0, "return": "much"},
    ],
)  # fmt: skip
def test_metrics_that_are_no_episodes_of_the_run_are_refused_in_a_sentence(row, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DamagedFile, match="are not episodes of this run"):
        training_returns(tmp_path, 2, 10)


def test_a_few_lines_do_not_ask_for_all_of_the_memory(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"client": 0, "episode": 0, "return": 1.0}) + "\n")
    assert training_returns(tmp_path, 2, 10).shape == (2, 10)
    with pytest.raises(DamagedFile, match="too few for 1000000000 clients"):
        training_returns(tmp_path, 10**9, 10)
