"""Where clients live must not matter to what they compute."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.engines import LocalEngine, ProcessEngine
from fedqhd.engines.process import assign_clients
from fedqhd.federation import plan_rounds, run_rounds
from fedqhd.runs import checkpoint
from fedqhd.runs.build import build
from fedqhd.runs.run import train
from worlds import CORRIDOR


def pid_of(client):
    return os.getpid()


def state_of(client):
    return client.state()


def stumble(client):
    raise ZeroDivisionError(f"client {client.index} fell")


def refuse(client):
    raise FedQHDError(f"client {client.index} would rather not")


def burn(client):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def engines(tmp_path, workers=2, **settings):
    made = []
    for kind in (LocalEngine, ProcessEngine):
        clients, world = build(tiny(tmp_path, **settings))
        options = {"workers": workers} if kind is ProcessEngine else {}
        made.append((kind(clients, world.federation, **options), world.federation))
    return made


@pytest.fixture
def engine(tmp_path):
    clients, world = build(tiny(tmp_path, clients=3, env=CORRIDOR))
    engine = ProcessEngine(clients, world.federation, workers=2)
    yield engine
    engine.close()


def gone(pid):
    """True once no such process is left, not even a dead one that nobody has buried."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "settings",
    [
        {"setting": "homogeneous"},
        {"setting": "heterogeneous", "clients": 3},
        {"setting": "heterogeneous", "anchor_source": "teacher", "learner": "least-squares"},
        {"setting": "heterogeneous", "anchor_source": "visited", "learner": "online"},
        {"method": "fedavg-dqn", "learning_starts": 10, "widths": [8]},
    ],
    ids=lambda s: "-".join(str(v) for v in s.values()),
)
def test_workers_compute_what_one_process_does(tmp_path, settings):
    ends, told = [], []
    for engine, federation in engines(tmp_path, env=CORRIDOR, **settings):
        episodes = []
        engine.on_episode = episodes.append
        try:
            history = list(run_rounds(engine, federation, plan_rounds(Quota(6), Quota(4))))
            ends.append((history, engine.each(state_of)))
        finally:
            engine.close()
        told.append(sorted(episodes))
    (local, states), (process, states_there) = ends
    assert told[0] == told[1]
    for (_, replies, teacher, _), (_, replies_there, teacher_there, _) in zip(local, process, strict=True):
        assert [r._replace(payload={}, seconds={}) for r in replies] == [
            r._replace(payload={}, seconds={}) for r in replies_there
        ]
        assert teacher.keys() == teacher_there.keys()
        assert all(np.array_equal(teacher[k], teacher_there[k]) for k in teacher)
    for one, other in zip(states, states_there, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[k], other[k]) for k in one)


def test_clients_stay_in_their_worker(engine):
    first, second = engine.each(pid_of), engine.each(pid_of)
    assert first == second
    assert len(set(first)) == 2
    assert first[0] == first[2] != first[1]
    assert os.getpid() not in first


def test_large_clients_are_shared_out_evenly(tmp_path):
    made = tiny(tmp_path, clients=5, setting="heterogeneous", dims=(500, 1000, 2000, 5000, 10_000))
    clients, _ = build(made)
    shares = [[c.index for c in share] for share in assign_clients(clients, 2)]
    assert shares == [[1, 4], [0, 2, 3]]  # 11,000 features and 7,500; by turns it would be 12,500 and 6,000
    assert [len(share) for share in assign_clients(clients, 5)] == [1] * 5
    clients, _ = build(tiny(tmp_path, clients=4))
    assert [[c.index for c in share] for share in assign_clients(clients, 2)] == [[0, 2], [1, 3]]


def test_some_clients_take_part(engine):
    replies = engine.round(None, Quota(2), [2, 1])
    assert [r.client for r in replies] == [1, 2]
    played = [len(r.episodes) for r in engine.round(None, Quota(1))]
    assert played == [1, 1, 1]


def test_an_error_surfaces_with_its_traceback(engine):
    with pytest.raises(RuntimeError, match=r"(?s)in stumble.*ZeroDivisionError: client [01] fell"):
        engine.each(stumble)


def test_our_own_errors_stay_one_sentence(engine):
    with pytest.raises(FedQHDError, match=r"^client [01] would rather not$"):
        engine.each(refuse)


def test_a_killed_worker_is_named(engine):
    victim = engine.each(pid_of)[0]
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(FedQHDError, match="worker process of clients 0, 2 ended by signal 9"):
        engine.round(None, Quota(2))


def test_nothing_is_left_running(engine):
    pids = set(engine.each(pid_of))
    engine.close()
    assert all(gone(pid) for pid in pids)


def test_cpu_seconds_count_the_workers(engine):
    before = engine.cpu_seconds()
    engine.each(burn)
    assert engine.cpu_seconds() - before > 0.3 * 3 * 0.9


def test_a_run_may_change_its_engine_when_it_resumes(tmp_path, monkeypatch):
    """Files and summary are the same but for the clocks, whichever engine made them, and half by each."""
    options = {"clients": 3, "setting": "heterogeneous", "anchor_source": "teacher", "episodes": 9, "round_episodes": 3}
    for name in ("local", "process"):
        train(tiny(tmp_path / name, **options, engine=name))
    real = checkpoint.save

    def save_then_die(folder, done, *rest):
        real(folder, done, *rest)
        if done.rounds_done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        train(tiny(tmp_path / "both", **options, engine="local"))
    monkeypatch.setattr(checkpoint, "save", real)
    train(tiny(tmp_path / "both", **options, engine="process"), resume=True)
    files = [(tmp_path / name) for name in ("local", "process", "both")]
    assert len({(f / "metrics.jsonl").read_bytes() for f in files}) == 1
    for client in range(3):
        assert len({(f / "models" / f"client-{client}.npz").read_bytes() for f in files}) == 1
    greedy = [json.loads((f / "summary.json").read_text())["greedy_return_per_client"] for f in files]
    assert greedy[0] == greedy[1] == greedy[2]


def test_without_flower_its_engine_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fedqhd.runs.run.find_spec", lambda name: None)
    with pytest.raises(FedQHDError, match=r"engine='flower' needs Flower.*fedqhd\[flower\]"):
        train(tiny(tmp_path, engine="flower"))


def test_ctrl_c_leaves_no_worker_behind(tmp_path):
    """As a terminal sends it: to the whole group of processes."""
    command = ["train", "--env", "CartPole-v1", "--clients", "2", "--round-episodes", "2", "--engine", "process"]
    run = subprocess.Popen(
        [Path(sys.executable).parent / "fedqhd", *command, "--out", str(tmp_path / "run")],
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "round 1/" in next(line for line in run.stdout if line.startswith("round "))
    os.killpg(run.pid, signal.SIGINT)
    _, error = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "resume with: fedqhd train --resume" in error
    assert "Traceback" not in error
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
