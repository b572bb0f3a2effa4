"""Whether a run is being trained: asked of real processes, which end in good order, are killed or leave workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from fedqhd.core import alive
from fedqhd.core.alive import is_training, training
from fedqhd.core.errors import FedQHDError
from fedqhd.runs.config import load_config
from fedqhd.runs.run import train
from processes import FEDQHD, kill_tree, read_until, start

HOLD = (
    "import sys, time; from pathlib import Path; from fedqhd.core.alive import training\nwith training(Path({!r})): {}"
)


def holding(folder, then="print('holding', flush=True); sys.stdin.read()"):
    process = start(sys.executable, "-c", HOLD.format(str(folder), then), stdin=subprocess.PIPE)
    assert "holding" in process.stdout.readline()
    return process


def test_a_process_that_ends_in_good_order_leaves_nothing(tmp_path):
    folder = tmp_path / "new" / "run"
    assert not is_training(folder)
    process = holding(folder)
    assert is_training(folder)
    assert is_training(folder)  # asking changes nothing
    process.communicate()
    assert not is_training(folder)
    assert list(folder.iterdir()) == []


def test_a_killed_process_trains_no_more_and_its_run_can_be_taken_up(tmp_path):
    process = holding(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / alive.NAME).exists()
    assert not is_training(tmp_path)
    with training(tmp_path):
        assert is_training(tmp_path)  # also asked by the process that trains
    assert not is_training(tmp_path)


def test_a_worker_that_outlives_its_parent_does_not_count(tmp_path):
    fork = "import os; os.fork() or time.sleep(60); print('holding', flush=True); sys.stdin.read()"
    process = holding(tmp_path, fork)
    assert is_training(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    try:
        end = time.monotonic() + 60  # on a busy machine, the worker may only now begin to live
        while is_training(tmp_path) and time.monotonic() < end:
            time.sleep(0.05)
        assert not is_training(tmp_path)
        os.killpg(process.pid, 0)  # the worker lives
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_two_processes_cannot_train_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(alive, "PATIENCE", 0.2)
    process = holding(tmp_path)
    with pytest.raises(FedQHDError, match=r"out='.+' is being trained by another process"), training(tmp_path):
        pass
    assert is_training(tmp_path)
    process.communicate()


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path):
    process = holding(tmp_path, "print('holding', flush=True); time.sleep(0.5)")
    begun = time.monotonic()
    with training(tmp_path):
        assert time.monotonic() - begun < alive.PATIENCE
    process.communicate()


def test_a_real_run_is_in_progress_until_it_is_killed_and_nobody_else_may_write(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    settings = ["--clients", "2", "--dims", "64", "--episodes", "4000", "--round-episodes", "4", "--out", str(folder)]
    process = start(FEDQHD, "train", "--env", "CartPole-v1", *settings)
    read_until(process, "round 2/")
    assert is_training(folder)
    monkeypatch.setattr(alive, "PATIENCE", 0.2)
    before = (folder / "config.toml").read_bytes()
    for option in ("resume", "overwrite"):
        with pytest.raises(FedQHDError, match="is being trained by another process"):
            train(load_config(folder / "config.toml"), **{option: True})
    assert (folder / "config.toml").read_bytes() == before
    kill_tree(process)
    assert not is_training(folder)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedQHDError, match="file/run"), training(tmp_path / "file" / "run"):
        pass
