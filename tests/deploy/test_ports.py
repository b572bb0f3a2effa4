"""The ports of real programs on loopback: a SuperLink, SuperNodes, and what is said where their users sit."""

from __future__ import annotations

import http.client
import os
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import psutil

from fedqhd.deploy.commands import SUPERLINK
from fedqhd.deploy.guard import SECRET_HEADER
from fedqhd.deploy.keys import make_keys, server_keys
from fedqhd.deploy.programs import free_port, is_listening, start, stop, write_rules
from fedqhd.deploy.rules import new_rules
from fedqhd.deploy.superlink import secured, sent_keys
from processes import FEDQHD, end, read_until, shifted, tree
from processes import start as begin

pytestmark = pytest.mark.slow

MEDIA = "application/protobuf"


@contextmanager
def superlink(home: Path, connections=20, keys=None):
    """A SuperLink as `fedqhd federate server` starts it; its port, its process and the secret of the run."""
    port = free_port()
    rules = new_rules()._replace(connections=connections, keys=sent_keys(keys) if keys else ())
    write_rules(rules, home)
    with (home / "log").open("w") as log:
        safe = secured(keys) if keys else ["--insecure"]
        program = start([*SUPERLINK, *safe, "--host", "127.0.0.1", "--port", str(port)], home, log)
        try:
            while not is_listening("127.0.0.1", port):
                assert program.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
            yield port, program, rules.secret
        finally:
            stop(program)


def ask(port, path, body=b"", **headers):
    """The status of the answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", path, body, {"Content-Type": MEDIA, **given})
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def client(folder, port, number=0, state="state", **surroundings):
    command = f"{FEDQHD} federate client --server 127.0.0.1:{port} --client {number} --state-dir {state}"
    process = begin(*command.split(), cwd=folder, env={**os.environ, **surroundings})
    try:
        yield process
    finally:
        end(process)


def test_a_superlink_serves_neither_pages_nor_strangers_and_stays_small(tmp_path):
    with superlink(tmp_path) as (port, program, secret), ExitStack() as stack:
        listed = "/v1/control/list-runs"
        assert ask(port, listed) == 403
        assert ask(port, listed, **{SECRET_HEADER: "guessed"}) == 403
        assert ask(port, listed, **{SECRET_HEADER: secret}) == 200
        for page in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
            assert ask(port, listed, **{SECRET_HEADER: secret}, **page) == 403
            assert ask(port, "/v1/fleet/register-node", **page) == 403
        before = psutil.Process(program.pid).memory_info().rss
        for path in ("/v1/fleet/push-object", "/v1/control/start-run", "/v1/runtime/push-object"):
            assert ask(port, path, (bytes(1 << 20) for _ in range(64))) in (403, 413)  # 64 MB without a length
            assert ask(port, path, Content_Length=str(64 << 20)) in (403, 413)
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, listed, **{SECRET_HEADER: secret}) == 200
        assert psutil.Process(program.pid).memory_info().rss < before + (32 << 20)
        assert psutil.Process(program.pid).num_fds() < 100


def test_a_client_whose_clock_is_ahead_is_told_so_and_joins(tmp_path):
    with superlink(tmp_path) as (port, _, _), client(tmp_path, port, **shifted(tmp_path, 30)) as process:
        said = read_until(process, "connected")
        assert "client 0: the clock of this machine is 30 seconds ahead of the server's" in said
        # Its own port is closed to whoever does not know the secret of its programs.
        ports = {
            c.laddr.port for pid in tree(process) for c in psutil.Process(pid).net_connections() if c.status == "LISTEN"
        }
        assert len(ports) == 1
        assert ask(ports.pop(), "/v1/runtime/acquire-task") == 403


def test_a_second_client_with_the_same_number_is_told_so_and_the_first_goes_on(tmp_path):
    with superlink(tmp_path) as (port, _, _), client(tmp_path, port) as first:
        read_until(first, "client 0: connected")
        with client(tmp_path, port, state="other") as second:
            said = second.communicate(timeout=120)[0]
            assert second.returncode == 2
            assert "fedqhd: client 0 is connected from another place: give another --client" in said
        assert first.poll() is None


def test_a_client_without_keys_at_a_port_with_keys_is_told_so(tmp_path):
    make_keys(tmp_path / "keys", 1, [], 1)
    keys = server_keys(tmp_path / "keys" / "server", 1)
    with superlink(tmp_path, keys=keys) as (port, _, _), ExitStack() as stack:
        with client(tmp_path, port) as plain:
            said = plain.communicate(timeout=120)[0]
            assert plain.returncode == 2
            assert f"fedqhd: server='127.0.0.1:{port}' encrypts its connections: give --keys" in said
        # Connections that never agree on encryption do not keep others out.
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        with client(tmp_path, port, state=f"s --keys {tmp_path / 'keys' / 'client-0'}") as keyed:
            assert "refuses its key so far" in read_until(keyed, "trying again")  # nobody has registered it
