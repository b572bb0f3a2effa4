"""Whether a run is being trained: asked of real processes, which end in good order, are killed or leave workers."""

from __future__ import annotations

import errno
import os
import signal
import socket
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


NO_LOCKS = """
import errno, fcntl
def flock(*args): raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""


def holding(folder, then="print('holding', flush=True); sys.stdin.read()", before=""):
    process = start(sys.executable, "-c", before + HOLD.format(str(folder), then), stdin=subprocess.PIPE)
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


@pytest.fixture
def no_locks(monkeypatch):
    """Answer as a file system without locks does, here and in the processes that `holding` starts with NO_LOCKS."""
    monkeypatch.setattr(alive, "PATIENCE", 0.5)

    def flock(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(alive.fcntl, "flock", flock)


def test_without_locks_the_process_that_the_file_names_counts(tmp_path, no_locks):
    process = holding(tmp_path, before=NO_LOCKS)
    assert is_training(tmp_path)
    sentence = rf"is being trained by another process \(number {process.pid} on .+; if it is gone, delete .+lock\)"
    with pytest.raises(FedQHDError, match=sentence), training(tmp_path):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not is_training(tmp_path)
    with training(tmp_path):
        assert is_training(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_locks_of_many_at_once_one_gets_the_folder(tmp_path, no_locks):
    """Each one either trains alone or is told who does."""
    script = "print('holding', flush=True); time.sleep(1.5)"
    racing = [start(sys.executable, "-c", NO_LOCKS + "import fedqhd.core.alive as a; a.PATIENCE = 1.0\n"
              + HOLD.format(str(tmp_path), script)) for _ in range(4)]  # fmt: skip
    said = [process.communicate()[0] for process in racing]
    assert sum("holding" in text for text in said) == 1
    assert sum("is being trained by another process" in text for text in said) == 3


def test_a_process_on_another_machine_counts_as_alive(tmp_path, no_locks):
    (tmp_path / alive.NAME).write_text("elsewhere 1 123")
    assert is_training(tmp_path)
    (tmp_path / alive.NAME).write_text(f"{socket.gethostname()} {os.getpid()} 123")  # its number is used again
    assert not is_training(tmp_path)
