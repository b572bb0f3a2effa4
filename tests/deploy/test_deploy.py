"""What a federation across machines agrees on, refuses and hides, without any network."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedqhd.core.alive import training
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import WriteFailed, write_bytes
from fedqhd.deploy.client import log_errors, set_up_logging, site
from fedqhd.deploy.commands import follow, likely_cause, write_home
from fedqhd.deploy.join import NodeEnd, lines_of
from fedqhd.deploy.programs import is_loopback, open_log, parse_address, start, stop
from fedqhd.deploy.settings import check_server, client_settings, greeting, needs_one_encoder
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


def test_a_server_may_go_by_steps_whatever_episodes_a_client_has_in_its_file(tmp_path):
    c, _ = client_settings(told(steps=70, round_steps=7), written(tmp_path, "episodes = 5\ndims = [77]\n"))
    assert (c.steps, c.round_steps, c.dims) == (70, 7, (77,))
    assert "episodes" not in c


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
        ("steps = 70\nround_steps = 7", {}, r"steps=70 .*contradicts the server, which has 0: leave it out"),
        ("round_steps = 7", {"steps": 70, "round_steps": 9}, r"round_steps=7 .*contradicts the server, which has 9"),
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


def test_a_program_of_flowers_does_not_outlive_the_one_that_started_it_in_whatever_thread(tmp_path):
    child = "import os, time; from fedqhd.deploy.flower import end_with_parent;"
    child += "end_with_parent(); print(os.getpid(), flush=True); time.sleep(600)"
    parent = (
        "import subprocess, sys, threading, time; command = [sys.executable, '-c', sys.argv[1]];"
        "thread = threading.Thread(target=lambda: subprocess.Popen(command, start_new_session=True));"
        "thread.start(); thread.join(); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    assert not gone_pid(pid, 2.0)  # the thread that started it has ended, its process has not
    process.kill()
    process.wait()
    assert gone_pid(pid, 5.0)


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


CODE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nfrom worlds import Corridor\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('env = "MODULE:Corridor"', "the server names code, env='MODULE:Corridor'"),
        ('env = "MODULE:Corridor-v0"', "names code, env="), ('env = "os:system"', "names code, env='os:system'"),
        ('method = "MODULE:Method"', "names code, method="), ('aggregate = "MODULE:rule"', "names code, aggregate="),
        ('encoder = ["MODULE:phi"]', "'encoder'=['MODULE:phi'], which is not for a server to choose"),
        ('learner = "MODULE:L"', "'learner'='MODULE:L', which is not"), ('callbacks = ["MODULE:C"]', "'callbacks'="),
        ('out = "/somewhere"', "'out'='/somewhere', which is not"), ('[fedqhd]\nlearner = "MODULE:L"', "'fedqhd'="),
        ("env = 3", "env=3 has the wrong type"), ("= nonsense", "the server sent settings that cannot be read"),
    ],
)  # fmt: skip
def test_a_server_names_no_code_for_its_clients(tmp_path, monkeypatch, line, said):
    """Nothing is imported, whatever the greeting says."""
    module = f"served_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = line.partition(" = ")[0]
    usual = "\n".join(x for x in told()["settings"].splitlines() if not x.startswith(f"{name} "))
    settings = f"{usual}\n{line.replace('MODULE', module)}\n"
    node = {"partition-id": 0, "state-dir": str(tmp_path / "state")}
    with pytest.raises(FedQHDError, match=re.escape(said.replace("MODULE", module))):
        site(node, {"settings": settings, "run": "r"})
    assert not (tmp_path / f"{module}.ran").exists()


def test_a_client_imports_what_its_own_file_names(tmp_path, monkeypatch):
    module = f"served_{uuid.uuid4().hex}"
    (tmp_path / f"{module}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    greeted = {"settings": told()["settings"].replace("CartPole-v1", f"{module}:Corridor")}
    c, _ = client_settings(greeted, written(tmp_path, f'env = "{module}:Corridor"\n'))
    assert c.env == f"{module}:Corridor"
    with pytest.raises(FedQHDError, match="the server names code"):
        client_settings(greeted, written(tmp_path, 'env = "CartPole-v1"\n'))


def test_a_greeting_without_settings_is_refused_in_a_sentence():
    for greeted in ({}, {"settings": 3}, {"settings": b"x"}, {"settings": "x ="}):
        with pytest.raises(FedQHDError, match="the server sent settings that cannot be read"):
            client_settings(greeted, "")


def test_settings_that_the_server_left_out_are_said_at_the_client():
    with pytest.raises(FedQHDError, match="the server's settings lack clients, env: is it of another version"):
        client_settings({"settings": "seed = 1", "run": "r"}, "")


def test_where_steps_are_weights_no_client_has_longer_episodes_than_the_server_knows(tmp_path):
    own = written(tmp_path, 'env = "CartPole-v1"')
    node = {"partition-id": 0, "state-dir": str(tmp_path), "config": own}
    greeted = told(env="CartPole-v0", weights="steps")
    with pytest.raises(
        FedQHDError, match=r"up to 500 steps, but the server's 'CartPole-v0' only of 200: with weights="
    ):
        site(node, greeted)
    site(node, told(env="CartPole-v0"))


@pytest.mark.parametrize(
    ("settings", "one"),
    [
        ({"setting": "homogeneous"}, True),
        ({"setting": "heterogeneous"}, False),
        ({"setting": "homogeneous", "method": "fedavg-dqn"}, True),
        ({"setting": "homogeneous", "method": "independent-qhd"}, False),
        ({"setting": "homogeneous", "learner": "least-squares", "weights": "precision"}, False),
    ],
)
def test_one_encoder_is_needed_where_parameters_are_averaged(settings, one):
    assert needs_one_encoder(resolve({"env": "CartPole-v1", "clients": 3, **settings})) == one


def test_a_grandchild_that_outlives_the_program_by_which_it_was_started_is_stopped(tmp_path):
    # As when a SuperNode ends by itself while a client's program is at work in a session of its own.
    program = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    command = (
        "import subprocess, sys; from pathlib import Path;"
        "from fedqhd.deploy.programs import adopt_orphans, start, stop;"
        "adopt_orphans(); other = start(['sleep', '600'], Path('.'), subprocess.DEVNULL);"
        "p = start([sys.executable, '-c', sys.argv[1]], Path('.'), subprocess.PIPE);"
        "grandchild = p.stdout.readline().strip(); p.wait(); stop(p);"
        "print(grandchild, other.poll(), flush=True); stop(other)"
    )
    said = subprocess.run(
        [sys.executable, "-c", command, program], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60
    ).stdout.split()
    assert gone_pid(int(said[0]), 1.0)
    assert said[1] == "None"  # another program of the command goes on


def test_what_a_program_prints_reaches_the_user_though_its_log_cannot_be_written(tmp_path):
    code = "print('fedqhd: the disk is full', flush=True)"
    program = start([sys.executable, "-c", code], tmp_path, subprocess.PIPE)
    assert list(lines_of(program, tmp_path / "nowhere" / "node.log")) == ["fedqhd: the disk is full\n"]
    program = start([sys.executable, "-c", code], tmp_path, subprocess.PIPE)
    assert list(lines_of(program, tmp_path / "node.log")) == [(tmp_path / "node.log").read_text()]


def test_bytes_that_are_no_text_do_not_stop_a_client_from_reading_on(tmp_path):
    code = "import os; os.write(1, b'\\xff\\n'); print('connected', flush=True)"
    program = start([sys.executable, "-c", code], tmp_path, subprocess.PIPE)
    assert list(lines_of(program, tmp_path / "node.log"))[-1] == "connected\n"


def test_why_a_node_has_ended_is_told(tmp_path):
    assert NodeEnd(connected=True).reason(tmp_path) == "the server is gone"
    assert NodeEnd(refused=1.0).reason(tmp_path) == "the server refuses its key so far"
    assert NodeEnd().reason(tmp_path) == f"its node could not connect, as {tmp_path}/node.log tells"


def test_a_client_that_cannot_write_its_state_says_so_on_its_own_machine(tmp_path, capsys):
    resource = pytest.importorskip("resource")  # a limit on the size of files is like a full disk
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def train(message, context):
        write_bytes(tmp_path / "state.npz", bytes(2 << 20))

    set_up_logging()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(WriteFailed):
            log_errors(None, None, train)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"fedqhd: .*state\.npz cannot be written \(.*\): make room or give another folder", said)


def test_a_server_whose_disk_is_too_full_for_its_log_says_so(tmp_path):
    resource = pytest.importorskip("resource")
    assert likely_cause(tmp_path) == f"the server's program ended early, and {tmp_path}/flwr.log may say why"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        said = likely_cause(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == f"{tmp_path}/room cannot be written (File too large): make room or give another folder"
    assert not list(tmp_path.iterdir())


def test_a_server_on_a_full_disk_does_not_start_and_says_why(tmp_path):
    resource = pytest.importorskip("resource")
    config, before = resolve(SERVER), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(WriteFailed, match=r"app/(LICENSE|pyproject.toml) cannot be written \(File too large\)"):
            write_home(config, tmp_path, "127.0.0.1:1", None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    app, log = write_home(config, tmp_path, "127.0.0.1:1", None)
    assert {file.name for file in app.iterdir()} == {"LICENSE", "pyproject.toml"}
    assert log.read_text() == ""


def test_two_clients_do_not_share_a_folder(tmp_path, capsys):
    with training(tmp_path / "flower"):
        words = f"client --server 127.0.0.1:1 --client 0 --state-dir {tmp_path}"
        assert main(["federate", *words.split()]) == 2
    assert f"state_dir={str(tmp_path)!r} is in use by another client: give another folder" in capsys.readouterr().err
