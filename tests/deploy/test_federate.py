"""A federation of real processes over loopback, as the documentation has it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress

import pytest

from conftest import ROOT, TESTS

pytest.importorskip("flwr")

from fedqhd.deploy.programs import free_port
from fedqhd.engines.flower import QUIET
from in_one_process import in_one_process
from pages import blocks_of
from processes import (
    FEDQHD,
    PATIENCE,
    end,
    gone_pid,
    kill_tree,
    listening,
    python_path,
    read_until,
    shifted,
    start,
    tree,
)

pytestmark = pytest.mark.federation

WALK_THROUGH = {"one.toml": "state/one", "two.toml": "state/two"}
ATTACK = 180.0
"""Seconds in which a federation of three rounds ends, also while it is attacked."""
APP = ROOT / "src" / "fedqhd" / "deploy" / "app"


def blocks():
    """The code of the page, by its title."""
    return {block.title: block.code for block in blocks_of("federation")}


@pytest.fixture
def terminals(tmp_path):
    """Start commands in a folder; what is left of them ends with the test."""
    started = []
    path = os.pathsep.join([str(FEDQHD.parent), os.environ["PATH"]])
    surroundings = {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(tmp_path / "home"), "APP": str(APP)}

    def terminal(command, **more):
        started.append(start("bash", "-c", f"exec {command}", cwd=tmp_path, env={**surroundings, **more}))
        return started[-1]

    yield terminal
    for process in started:
        end(process)


def ported(command, port):
    """The page's commands have fixed ports; here others may run beside us."""
    for fixed in re.findall(r"--port (\d+)", command):
        command = command.replace(f"--port {fixed}", f"--port {port if fixed == '9093' else free_port()}")
    command = command.replace("127.0.0.1:9093", f"127.0.0.1:{port}")
    return f"{command.strip()} --port {port}" if command.startswith("fedqhd federate server") else command


def lay_out(folder):
    for name, text in blocks().items():
        if name.endswith(".toml"):
            (folder / name).write_text(text)


def assert_bits_of_one_process(folder):
    """The walk-through left the metrics and the models of a run in one process."""
    metrics, models, _ = in_one_process(folder, WALK_THROUGH)
    assert (folder / "runs/federation/metrics.jsonl").read_text() == metrics
    for i, home in enumerate(("one", "two")):
        assert (folder / "state" / home / "models" / f"client-{i}.npz").read_bytes() == models[i]


def test_the_walk_through_gives_the_bits_of_one_process(tmp_path, terminals):
    lay_out(tmp_path)
    port = free_port()
    commands = [ported(blocks()[f"terminal {i}"], port) for i in (1, 2, 3)]
    processes = server, *clients = [terminals(command) for command in commands]
    read_until(server, "client 1 has joined")
    trees = [tree(process) for process in processes]
    for process in (*clients, server):
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, said
    assert "results in runs/federation" in said
    assert_bits_of_one_process(tmp_path)
    assert not (tmp_path / "runs/federation/models").exists()
    assert all(gone_pid(pid) for pids in trees for pid in pids)


def test_rounds_of_steps_give_the_bits_of_one_process(tmp_path, terminals):
    """Every message is handled by a new process, which plays the open episode again before it goes on."""
    lay_out(tmp_path)
    text, by_episodes = (tmp_path / "server.toml").read_text(), "episodes = 12\nround_episodes = 4"
    assert by_episodes in text
    (tmp_path / "server.toml").write_text(text.replace(by_episodes, "steps = 300\nround_steps = 125"))
    port = free_port()
    server, *clients = [terminals(ported(blocks()[f"terminal {i}"], port)) for i in (1, 2, 3)]
    for process in (*clients, server):
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, said
    assert "round 3/3  steps 300/300" in said
    assert_bits_of_one_process(tmp_path)


def test_flowers_own_commands_do_the_same(tmp_path, terminals):
    lay_out(tmp_path)
    port = free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    programs = [terminals(ported(blocks()[f"flower {i}"], port)) for i in (1, 2, 3)]
    read_until(programs[0], "Application startup complete")
    run = terminals(blocks()["flower 4"])
    said = run.communicate(timeout=PATIENCE)[0]
    assert "round 3/3" in said
    metrics, models, _ = in_one_process(tmp_path, WALK_THROUGH)
    assert (tmp_path / "runs/flower/metrics.jsonl").read_text() == metrics
    assert (tmp_path / "state" / "two" / "models" / "client-1.npz").read_bytes() == models[1]


def test_with_keys_the_bits_are_the_same_and_strangers_are_refused(tmp_path, terminals):
    lay_out(tmp_path)
    port = free_port()
    made = terminals(blocks()["keys"])
    assert "keep ca.key here" in made.communicate(timeout=PATIENCE)[0]
    shutil.copytree(tmp_path / "keys", tmp_path / "more")
    more = terminals("fedqhd federate keys more --clients 3")
    assert more.wait(PATIENCE) == 0

    def here(title):
        return ported(blocks()[title].replace("0.0.0.0", "127.0.0.1").replace("robot.lan", "127.0.0.1"), port)

    watched = "--callbacks evaluate:every=1,episodes=2 keep-best"  # these change no bit
    server, *clients = (terminals(f"{here(f'secure {i}')} {watched if i == 1 else ''}") for i in (1, 2, 3))
    stranger = terminals(here("secure 3").replace("keys/client-1", "more/client-2").replace("state/two", "state/three"))
    plain = terminals(here("secure 2").replace("--keys keys/client-0", "").replace("state/one", "state/four"))
    assert "client 1: the server refuses its key so far" in read_until(stranger, "trying again")
    for process in (*clients, server):
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0, said
    metrics, models, _ = in_one_process(tmp_path, WALK_THROUGH)
    assert (tmp_path / "runs/secure/metrics.jsonl").read_text() == metrics
    for i, home in enumerate(("one", "two")):
        assert (tmp_path / "state" / home / "models" / f"client-{i}.npz").read_bytes() == models[i]
        assert (tmp_path / "state" / home / "best" / "models" / f"client-{i}.npz").exists()
    evaluated = [json.loads(line) for line in (tmp_path / "runs/secure/evaluations.jsonl").read_text().splitlines()]
    assert [(line["round"], len(line["greedy_return_per_client"])) for line in evaluated] == [(0, 2), (1, 2), (2, 2)]
    for process in (stranger, plain):
        end(process)
        assert "connected" not in process.stdout.read()


SERVER = """
env = "CartPole-v1"
setting = "heterogeneous"
learner = "replay"
clients = 3
episodes = {episodes}
round_episodes = 4
anchors = 40
anchor_source = "rollout"
aggregate = "mean"
"""
CLIENT = """
env = "{env}"
learner = "replay"
dims = [64]
epsilon_decay = 0.9
eval_episodes = 1
"""


class Fleet:
    """A server and clients 0 to 2, of which each can be started at any time."""

    def __init__(self, folder, terminals, episodes, server="", **slow):
        """`slow`: what the clients that live in the slow world find in their surroundings, as c1={...}."""
        self.folder, self.terminals, self.port, self.slow = folder, terminals, free_port(), slow
        (folder / "server.toml").write_text(SERVER.format(episodes=episodes))
        for i in range(3):
            env = "saboteur:Slow-v0" if f"c{i}" in slow else "CartPole-v1"
            (folder / f"c{i}.toml").write_text(CLIENT.format(env=env))
        self.flags = server

    def serve(self, more="--config server.toml", **surroundings):
        command = f"{FEDQHD} federate server {more} --out run --port {self.port} {self.flags}"
        self.server = self.terminals(command, **surroundings)
        return self.server

    def join(self, i):
        more = {"PYTHONPATH": python_path(TESTS), "FEDQHD_TEST_EPISODES": str(self.folder / f"episodes-{i}")}
        return self.terminals(
            f"{FEDQHD} federate client --server 127.0.0.1:{self.port} --client {i} --config c{i}.toml --state-dir s{i} "
            "--encoder-seed 0",
            **more, **self.slow.get(f"c{i}", {}),
        )  # fmt: skip

    def wait_for_episode(self, i, n):
        path, end = self.folder / f"episodes-{i}", time.monotonic() + PATIENCE
        while not path.exists() or len(path.read_text().splitlines()) < n:
            waits = self.server.poll() is None and time.monotonic() < end
            assert waits, f"client {i} did not get to episode {n}:\n{self.logs()}"
            time.sleep(0.02)

    def logs(self):
        """How the logs of all programs end."""
        ends = ((log, log.read_text().splitlines()[-15:]) for log in sorted(self.folder.rglob("*.log")))
        return "\n".join(line for log, last in ends for line in (f"{log.relative_to(self.folder)}:", *last))

    def played(self):
        """{client: {round: its episodes}}"""
        told = {}
        for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            told.setdefault(row["client"], {}).setdefault(row["round"], []).append(row["episode"])
        return told

    def summary(self):
        return json.loads((self.folder / "run" / "summary.json").read_text())


def test_a_client_killed_in_a_round_is_left_out_and_back_within_two_rounds(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=32, server="--grace 10", c1={})
    server, _, victim, _ = fleet.serve(), *(fleet.join(i) for i in range(3))
    fleet.wait_for_episode(1, 6)  # the second of its second round
    kill_tree(victim)
    read_until(server, "client 1 is left out of this round: it has not answered in time")
    fleet.join(1)
    said = server.communicate(timeout=PATIENCE)[0]
    assert server.returncode == 0, said
    played = fleet.played()
    assert played[0] == played[2] == {k: list(range(4 * k, 4 * k + 4)) for k in range(8)}
    missed = [k for k in range(8) if k not in played[1]]
    assert missed[0] == 1
    assert 1 <= len(missed) <= 3  # the round it died in, and two more at the most
    # It went on from its own checkpoint: no episode is missing, and none that counted was played twice.
    assert [e for k in sorted(played[1]) for e in played[1][k]] == list(range(4 * len(played[1])))
    assert sum(fleet.summary()["replies"]["absent"].values()) == len(missed)


def test_a_server_killed_in_a_round_goes_on_from_its_last_to_the_same_bits(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=16, c1={})
    server, *clients = fleet.serve(), *(fleet.join(i) for i in range(3))
    fleet.wait_for_episode(1, 10)  # the second of its third round
    kill_tree(server)
    assert not (tmp_path / "run" / "summary.json").exists()
    resumed = fleet.serve("--resume")
    said = resumed.communicate(timeout=PATIENCE)[0]
    assert resumed.returncode == 0, said
    assert "resumed after round 2" in said
    assert not fleet.summary()["replies"]["absent"], said
    for client in clients:
        assert "the server is gone; trying again" in client.communicate(timeout=PATIENCE)[0]
    monkey = pytest.MonkeyPatch()
    monkey.syspath_prepend(str(TESTS))
    metrics, models, _ = in_one_process(tmp_path, {f"c{i}.toml": None for i in range(3)})
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics
    for i in range(3):
        assert (tmp_path / f"s{i}" / "models" / f"client-{i}.npz").read_bytes() == models[i]


def test_a_client_that_raises_lies_or_falls_silent_cannot_stop_the_rest(tmp_path, terminals):
    faults = {"FEDQHD_TEST_FAULTS": "fine raise nan shape hang"}
    fleet = Fleet(tmp_path, terminals, episodes=24, server="--grace 15", c2=faults)
    server = fleet.serve()
    for i in range(3):
        fleet.join(i)
    said = server.communicate(timeout=PATIENCE)[0]
    assert server.returncode == 0, said
    for sentence in (
        "client 2 is left out of this round: it raised an error: .*the robot fell over",
        "the reply of client 2 is refused: its Q is not finite",
        r"the reply of client 2 is refused: its Q is of shape \(7, 2\), but \(40, 2\) is expected",
        "client 2 is left out of this round: it has not answered in time",
        "client 2 is left out of this round: it has not yet answered the previous message",
    ):
        assert re.search(sentence, said), sentence
    played = fleet.played()
    assert list(played[0]) == list(played[1]) == list(range(6))
    assert fleet.summary()["replies"]["refused"] == {"2/not finite": 1, "2/shape": 1}
    assert fleet.summary()["greedy_return_per_client"][2] is None


def test_masked_replies_over_a_network(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=8)
    metrics, *_ = in_one_process(tmp_path, {f"c{i}.toml": None for i in range(3)})
    with (tmp_path / "server.toml").open("a") as f:
        f.write('secure = "secagg+"\n')
    server = fleet.serve()
    for i in range(3):
        fleet.join(i)
    said = server.communicate(timeout=PATIENCE)[0]
    assert server.returncode == 0, said
    assert not fleet.summary()["replies"]["absent"]
    # Until the first teacher, which is off by a rounding, nothing differs.
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert lines[:12] == metrics.splitlines()[:12]
    assert len(lines) == 24


def test_a_node_with_other_anchors_is_refused_and_too_few_end_the_wait(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=4, server="--wait 40")
    with (tmp_path / "c1.toml").open("a") as f:
        f.write("anchors = 41\n")
    server, _, other = fleet.serve(), fleet.join(0), fleet.join(1)
    said = server.communicate(timeout=PATIENCE)[0]
    assert server.returncode == 2
    assert "waiting for" in said
    refusal = next(line for line in said.splitlines() if line.startswith("a node is refused: client 1"))
    assert "41 anchors" in refusal
    assert "40 anchors" in refusal
    assert "of clients=3 these had not joined after 40 seconds: 1, 2; start them, or wait longer" in said
    end(other)
    theirs = other.stdout.read()
    assert "fedqhd: the server has other anchors" in theirs
    assert "40 anchors" in theirs


def test_a_federation_goes_on_while_strangers_attack_it_and_its_clock_jumps(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=12)
    server, *clients = fleet.serve(**shifted(tmp_path, 0)), *(fleet.join(i) for i in range(3))
    read_until(server, "round 1/")
    (tmp_path / "clock" / "shift").write_text("3600")
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", fleet.port)))
        for path, status in (("/v1/control/start-run", 403), ("/v1/fleet/push-object", 413)):
            connection = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=60)
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", path, (bytes(1 << 20) for _ in range(64)))
            assert connection.getresponse().status == status
        second = fleet.terminals(
            f"{FEDQHD} federate client --server 127.0.0.1:{fleet.port} --client 0 --config c0.toml --state-dir other"
        )
        try:  # if the clock jumped, nodes would be taken for dead, and the run would wait for them
            assert "client 0 is connected from another place" in second.communicate(timeout=ATTACK)[0]
            said = server.communicate(timeout=ATTACK)[0]
        except subprocess.TimeoutExpired:
            pytest.fail(f"the federation did not go on:\n{fleet.logs()}")
    assert server.returncode == 0, said
    assert not fleet.summary()["replies"]["absent"], said
    for client in clients:
        assert "gone" not in client.communicate(timeout=PATIENCE)[0]
    metrics, models, _ = in_one_process(tmp_path, {f"c{i}.toml": None for i in range(3)})
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics
    assert (tmp_path / "s0" / "models" / "client-0.npz").read_bytes() == models[0]
    assert not list(tmp_path.rglob("rules.json"))  # secrets do not stay behind


def test_nothing_listens_on_other_than_loopback_and_ctrl_c_leaves_nothing_behind(tmp_path, terminals):
    fleet = Fleet(tmp_path, terminals, episodes=400)
    processes = [fleet.serve(), *(fleet.join(i) for i in range(3))]
    read_until(processes[0], "round 1/")
    trees = [tree(process) for process in processes]
    assert all(listening(pids) == {"127.0.0.1"} for pids in trees)
    for process in processes:
        os.killpg(process.pid, signal.SIGINT)
    said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert [process.returncode for process in processes] == [130] * 4
    assert "resume with: fedqhd federate server --resume --out run" in said[0]
    assert "Traceback" not in "".join(said)
    assert all(gone_pid(pid) for pids in trees for pid in pids)
