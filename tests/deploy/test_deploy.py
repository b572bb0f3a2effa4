"""What a federation across machines agrees on, refuses and hides, without any network."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedqhd.core.errors import FedQHDError
from fedqhd.deploy.client import site
from fedqhd.deploy.commands import follow
from fedqhd.deploy.programs import is_loopback, open_log, parse_address, start, stop
from fedqhd.deploy.settings import check_server, client_settings, greeting
from fedqhd.deploy.superlink import guarded
from fedqhd.envs.public import make_public
from fedqhd.federation import ADAPTIVE, Privacy, Rounded, Terms
from fedqhd.runs.build import make_federation
from fedqhd.runs.config import resolve
from fedqhd.ui.cli import main
from processes import gone_pid

SERVER = {
    "env": "CartPole-v1", "setting": "heterogeneous", "clients": 3, "anchors": 50, "anchor_source": "rollout",
    "seed": 4, "out": "somewhere",
}  # fmt: skip


def told(**settings):
    return {**greeting(resolve({**SERVER, **settings})), "run": "r"}


def written(tmp_path, text):
    path = tmp_path / "client.toml"
    path.write_text(text)
    return str(path)


def test_a_client_without_a_file_goes_by_the_server_and_the_defaults():
    c, shared = client_settings(told(), "")
    assert (c.env, c.anchors, c.seed, c.clients) == ("CartPole-v1", 50, 4, 3)
    assert c == shared
    assert c.dims == resolve({"setting": "heterogeneous"}).dims


def test_how_it_learns_is_a_clients_own_say_and_public_draws_stay_the_servers(tmp_path):
    c, shared = client_settings(told(), written(tmp_path, 'learner = "online"\ndims = [77]\nseed = 9\n'))
    assert (c.learner, c.dims, c.seed) == ("online", (77,), 9)
    assert shared.seed == 4
    ours = make_public(resolve(SERVER)).fingerprint()
    assert make_public(shared).fingerprint() == ours
    assert make_public(c).fingerprint() != ours


def test_what_the_server_asks_for_is_possible_for_a_client_that_says_nothing():
    c, _ = client_settings(told(secure="secagg+", aggregate="mean", dp_clip=2.0), "")
    assert (c.secure, c.aggregate, c.dp_clip) == ("secagg+", "mean", 2.0)


def test_a_client_may_insist_on_being_hidden(tmp_path):
    with pytest.raises(FedQHDError, match=r"dp_clip=2\.0 .*contradicts the server, which has 0\.0"):
        client_settings(told(), written(tmp_path, "dp_clip = 2.0\n"))


def test_other_anchors_or_actions_have_another_fingerprint():
    ours = make_public(resolve(SERVER)).fingerprint()
    assert ours.endswith("(4 state variables, 50 anchors, 2 actions)")
    for other in (
        {"anchors": 51},
        {"anchor_source": "uniform"},
        {"seed": 5},
        {"scaling": "box"},
        {"env": "Acrobot-v1"},
    ):
        assert make_public(resolve({**SERVER, **other})).fingerprint() != ours


@pytest.mark.parametrize(
    ("file", "server", "sentence"),
    [
        ("episodes = 7", {}, r"episodes=7 .*contradicts the server, which has 600: leave it out"),
        ('setting = "homogeneous"\nseed = 5', {}, r"seed=5 .*another encoder than the server's seed=4"),
        ("dims = [0]", {}, r"dims=\[0\] is not possible"),
        ("dimensions = [10]", {}, "unknown setting 'dimensions'"),
        (
            'env = "Acrobot-v1"',
            {},
            r"'Acrobot-v1' has 6 state variables and 3 actions, but .*'CartPole-v1' has 4",
        ),
        ("", {"clients": 1}, r"partition-id=2 is not possible: the server has clients 0 to 0"),
    ],
)
def test_a_client_that_does_not_fit_says_why(tmp_path, file, server, sentence):
    node = {"partition-id": 2, "state-dir": str(tmp_path), "config": written(tmp_path, file)}
    with pytest.raises(FedQHDError, match=sentence):
        site(node, told(**server))


def test_a_node_without_a_number_or_a_home_says_what_to_give():
    with pytest.raises(FedQHDError, match="node-config lacks partition-id, state-dir: give"):
        site({}, told())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "oracle-qhd"}, "method='oracle-qhd' pools the data"),
        ({"attack": "noise"}, "attack='noise' is for experiments on one machine"),
        *(({"attack": name}, f"attack='{name}' is for experiments on one machine") for name in ADAPTIVE),
        ({"late": 0.5}, "late=0.5 is for experiments"),
    ],
)
def test_what_needs_all_clients_in_one_hand_is_refused(settings, sentence):
    with pytest.raises(FedQHDError, match=sentence):
        check_server(resolve({}, shared={**SERVER, **settings}))


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("server --quorum 0", "quorum=0 is not possible: it must be above 0 and at most 1"),
        ("server --grace -1", "grace=-1 is not possible"),
        ("server --wait nan", "wait=nan is not possible"),
        ("server --method oracle-dqn", "method='oracle-dqn' pools"),
        ("server --clients 0", "clients=0 is not possible"),
        ("server --insecure --host 999.1.1.1", "host='999.1.1.1' is not available"),
        ("client --server nowhere --client 0 --state-dir x", "server='nowhere' is not an address: give HOST:PORT"),
        ("client --server here:99999 --client 0 --state-dir x", "server='here:99999' is not an address"),
        ("client --server 127.0.0.1:1 --client -1 --state-dir x", "client=-1 is not possible: clients are numbered"),
        ("client --server 127.0.0.1:1 --client 0 --state-dir x --config no.toml", "config='no.toml' does not exist"),
        ("client --server 127.0.0.1:1 --client 0", "--state-dir"),
        ("nobody", "invalid choice: 'nobody'"),
    ],
)
def test_bad_arguments_are_said_in_one_sentence_before_anything_starts(
    tmp_path, monkeypatch, capsys, command, sentence
):
    monkeypatch.chdir(tmp_path)
    assert main(["federate", *command.split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_said(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["federate", "server", "--port", str(port), "--out", str(tmp_path / "run")]) == 2
    assert f"port={port} on host='127.0.0.1' is not available (Address already in use)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_taken_port_of_a_client_is_said(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = f"client --server 127.0.0.1:1 --client 0 --state-dir {tmp_path / 'x'} --port {port}"
        assert main(["federate", *words.split()]) == 2
    assert f"port={port} on host='127.0.0.1' is not available (Address already in use)" in capsys.readouterr().err


def test_without_flower_it_is_said_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("fedqhd.deploy.cli.find_spec", lambda name: None)
    assert main(["federate", "server"]) == 2
    assert "fedqhd[flower]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "client", "server", "status"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.9", "10.0.0.1", 200),
        ("/v1/control/start-run", "10.0.0.9", "10.0.0.1", 403),
        ("/v1/control/register-node", "10.0.0.9", "10.0.0.1", 403),
        ("/v1/runtime/push-messages", "2001:db8::9", "2001:db8::1", 403),
        ("/v1/fleet/../control/start-run", "10.0.0.9", "10.0.0.1", 403),
        ("/docs", "10.0.0.9", "10.0.0.1", 403),
        ("/v1/control/start-run", "127.0.0.1", "127.0.0.1", 200),
        ("/v1/control/start-run", "10.0.0.1", "10.0.0.1", 200),
        ("/v1/control/start-run", "::1", "::1", 200),
        ("/v1/control/start-run", None, None, 403),
    ],
)
def test_other_machines_are_served_only_what_is_for_nodes(path, client, server, status):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "client": client and (client, 5), "server": server and (server, 9093)}
    asyncio.run(guarded(app)(scope, None, send))
    assert sent[0]["status"] == status


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("robot", False)],
)
def test_loopback_is_told_from_the_rest(host, expected):
    assert is_loopback(host) is expected


def test_addresses():
    assert parse_address("robot.lan:9093") == ("robot.lan", 9093)
    assert parse_address("[::1]:80") == ("::1", 80)


def test_a_program_ends_with_the_command_that_started_it_even_by_kill_9(tmp_path):
    code = (
        "import subprocess, sys, time; from pathlib import Path; from fedqhd.deploy.programs import start;"
        "p = start([sys.executable, '-c', 'import time; time.sleep(60)'], Path(sys.argv[1]), subprocess.DEVNULL);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    assert gone_pid(child)


def test_a_client_draws_noise_that_the_server_cannot_draw_again(tmp_path):
    """The server knows every seed, so that of the run is none for privacy."""
    settings = {"dp_clip": 3.0, "dp_noise": 0.7, "dims": [20], "uplink": "int8"}
    home = site({"partition-id": 0, "state-dir": str(tmp_path)}, told(**settings))
    terms = Terms.of([home.member, home.member._replace(fingerprint="another encoder")])
    federation = home.federation(terms)
    assert isinstance(federation, Rounded)
    assert federation.inner.privacy == Privacy(3.0, 0.7, None)
    assert not np.array_equal(*(federation.report(home.client, None)["Q"] for _ in range(2)))
    c = resolve({**SERVER, **settings})
    assert make_federation(c, terms, make_public(c)).inner.privacy == Privacy(3.0, 0.7, SERVER["seed"])


def test_stopping_a_program_ends_its_children_in_other_sessions_too(tmp_path):
    # The child ignores SIGTERM and has a child of its own, as Flower's detached programs may.
    child = "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child += "print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    parent = "import subprocess, sys, time; command = [sys.executable, '-c', sys.argv[1]]; "
    parent += "print(subprocess.Popen(command, start_new_session=True).pid, flush=True); time.sleep(600)"
    program = start([sys.executable, "-c", parent, child], tmp_path, subprocess.PIPE)
    pids = [program.pid, *(int(program.stdout.readline()) for _ in range(2))]
    stop(program)
    assert all(gone_pid(pid, 1.0) for pid in pids)


def test_a_child_of_the_last_program_cannot_hide_what_the_next_one_logs(tmp_path):
    path = tmp_path / "node.log"
    with open_log(path) as old:
        old.write("a long line of a program that has ended, but not its child\n")
        old.flush()
        with open_log(path) as new:
            program = subprocess.Popen([sys.executable, "-c", "print(input(), flush=True)"], stdin=subprocess.PIPE,
                                       stdout=new, text=True)  # fmt: skip
            lines = follow(path, program)
            old.write("the child says something, too\n")
            old.flush()
            program.communicate("connected")
            assert list(lines) == ["connected\n"]
