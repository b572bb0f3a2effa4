"""The guard before every port: who may ask, how much is read, and who gives way when too many are connected."""

from __future__ import annotations

import asyncio
import http.client
import socket
import stat
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr")

import httpx

from fedqhd.deploy import rules as rules_module
from fedqhd.deploy.connections import Visitors, make_server
from fedqhd.deploy.flower import carry_secret
from fedqhd.deploy.guard import LOOPBACK, SECRET_HEADER, TIME_HEADER, Guard, from_a_page
from fedqhd.deploy.nodes import Nodes
from fedqhd.deploy.programs import flower_environment, free_port, write_rules
from fedqhd.deploy.rules import PIECE, REPLY, limited, new_rules, read_rules
from fedqhd.runs.config import resolve

SECRET = "the secret of the run"
FLEET, CONTROL = "/v1/fleet/push-object", "/v1/control/start-run"


@pytest.mark.parametrize(
    ("headers", "names", "foreign"),
    [
        ({"host": "127.0.0.1:9093"}, LOOPBACK, False),
        ({"host": "localhost"}, LOOPBACK, False),
        ({"host": "[::1]:9093"}, LOOPBACK, False),
        ({"host": "LOCALHOST:1"}, LOOPBACK, False),
        ({"host": "evil.example:9093"}, LOOPBACK, True),
        ({"host": "127.0.0.1.evil.example"}, LOOPBACK, True),
        ({"host": "evil.example@127.0.0.1"}, LOOPBACK, True),
        ({"host": ""}, LOOPBACK, True),
        ({}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "origin": "http://127.0.0.1:80"}, LOOPBACK, False),
        ({"host": "127.0.0.1:80", "origin": "http://127.0.0.1:81"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "origin": "https://evil.example"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "origin": "null"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "cross-site"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "same-site"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "same-origin"}, LOOPBACK, False),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}, LOOPBACK, True),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, LOOPBACK, False),
        ({"host": "robot.lan:80"}, (), False),
        ({"host": "evil.example", "origin": "http://evil.example"}, (), True),
    ],
)
def test_requests_that_a_web_page_could_send_are_told_from_the_rest(headers, names, foreign):
    assert bool(from_a_page(headers, names)) is foreign


async def echo(scope, receive, send):
    """An application that tells how long the request is."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


def guard(**options):
    given = {"nodes": Nodes((), 1000, 1000, time.time), "most": 1000, "clock": lambda: 12.5}
    return Guard(echo, SECRET, **{**given, **options})


def status_of(app, path, client="127.0.0.1", server="127.0.0.1", **headers):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    heads = {"host": "127.0.0.1:9093", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "path": path, "client": client and (client, 5), "server": server and (server, 9093),
        "headers": [(name.encode(), value.encode()) for name, value in heads.items()],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert (TIME_HEADER.encode(), b"12.500") in sent[0]["headers"]
    return sent[0]["status"]


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
    assert status_of(guard(), path, client, server, **{SECRET_HEADER: SECRET}) == status


def test_programs_of_this_machine_need_the_secret_of_the_run_for_all_that_is_not_for_nodes():
    for path in (CONTROL, "/v1/runtime/acquire-task", "/docs", "/health", "/"):
        assert status_of(guard(), path) == 403
        assert status_of(guard(), path, **{SECRET_HEADER: SECRET + "!"}) == 403
        assert status_of(guard(), path, **{SECRET_HEADER: SECRET}) == 200
        assert status_of(guard(), path, **{SECRET_HEADER: SECRET}, origin="https://evil.example") == 403
    assert status_of(guard(nodes=None), FLEET) == 403  # the port of a SuperNode has no part for nodes


@contextmanager
def serving(app, visitors):
    """A real web server on loopback; its port."""
    port = free_port()
    server = make_server(app, visitors, host="127.0.0.1", port=port, log_level="critical")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


def post(port, path, body=b"", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it was sent all
        connection.request("POST", path, body, {name.replace("_", "-"): v for name, v in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_what_is_too_long_is_refused_before_it_is_read():
    visitors = Visitors(20)
    app = guard(most=1 << 16)
    with serving(app, visitors) as port:
        path = "/v1/fleet/push-messages"
        assert post(port, path, bytes(1 << 16)) == (200, b"65536")
        assert post(port, path, Content_Length=str(10**10))[0] == 413
        assert post(port, path, iter([bytes(1 << 15)] * 3))[0] == 413  # in pieces, without a length
        assert post(port, CONTROL, Content_Length=str(10**10))[0] == 403
        assert app.held == 0


def test_a_message_that_stops_half_way_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("fedqhd.deploy.guard.BODY_SECONDS", 0.2)
    with serving(guard(), Visitors(20)) as port:
        assert post(port, "/v1/fleet/push-messages", b"half", Content_Length="8")[0] == 408


def test_idle_connections_give_way_to_new_ones():
    visitors = Visitors(20)
    with serving(guard(served=visitors.served), visitors) as port, ExitStack() as stack:
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        kept.request("POST", "/v1/fleet/pull-messages")
        assert kept.getresponse().read() == b"0"
        for i in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if i % 20 == 0:
                assert post(port, "/v1/fleet/pull-messages")[0] == 200
        time.sleep(0.3)
        still = [v for v in visitors.open.values() if v.connection.fileno() >= 0]
        assert len(still) <= 20
        kept.request("POST", "/v1/fleet/pull-messages")  # it has been served, so that it gives way last
        assert kept.getresponse().read() == b"0"


def test_connections_that_ask_for_nothing_are_closed_after_a_while():
    with serving(guard(), Visitors(20, idle=0.3)) as port, socket.create_connection(("127.0.0.1", port)) as silent:
        silent.settimeout(10)
        assert silent.recv(1) == b""


def test_another_machine_holds_at_most_half_of_the_connections():
    visitors = Visitors(10)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for i in range(10):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            connection = stack.enter_context(listener.accept()[0])
            assert visitors.enter(connection, ("10.0.0.9", i))
        assert sum(not v.dismissed for v in visitors.open.values()) == 5


def test_only_the_user_can_read_the_secret(tmp_path, monkeypatch):
    rules = new_rules()._replace(keys=("k",), client="0 here")
    write_rules(rules, tmp_path)
    assert stat.S_IMODE((tmp_path / "rules.json").stat().st_mode) == 0o600
    monkeypatch.setenv(rules_module.VARIABLE, str(tmp_path / "rules.json"))
    assert read_rules() == rules
    assert new_rules().secret != rules.secret
    assert len(rules.secret) >= 32


def test_the_secret_goes_to_the_programs_of_the_federation_alone_and_through_no_proxy(tmp_path, monkeypatch):
    async def tell(scope, receive, send):
        seen.append(dict(scope["headers"]).get(SECRET_HEADER.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await tell(scope, receive, send)

    seen = []
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    environment = flower_environment(tmp_path)
    assert environment["NO_PROXY"] == "example.org,127.0.0.1,localhost,::1"
    monkeypatch.setenv("no_proxy", environment["no_proxy"])
    monkeypatch.setattr(httpx, "Client", httpx.Client)  # undone after the test
    carry_secret(SECRET)
    with serving(app, Visitors(20)) as port, httpx.Client(timeout=5.0) as client:
        for path in (CONTROL, "/v1/runtime/acquire-task", "/elsewhere"):
            assert client.post(f"http://127.0.0.1:{port}{path}").status_code == 200
    assert seen == [SECRET.encode(), SECRET.encode(), None]


def test_limits_follow_the_settings():
    small = limited(new_rules(), resolve({"clients": 3, "dims": [100]}), 4, 2)
    large = limited(new_rules(), resolve({"clients": 30, "dims": [10**5]}), 4, 2)
    assert PIECE < small.most < 2 * PIECE
    assert large.most > 8 * 10**5 * 2
    assert large.connections > small.connections
    assert small.unpacked < 2 * REPLY


def test_the_time_of_the_federation_does_not_jump(monkeypatch):
    from flwr.supercore import date

    from fedqhd.deploy.clock import difference, use_steady_clock

    monkeypatch.setattr(date, "datetime", date.datetime)  # undone after the test
    use_steady_clock(time.time() + 3600 - time.monotonic())
    ahead = date.now() - datetime.now(UTC)
    assert abs(ahead - timedelta(hours=1)) < timedelta(seconds=1)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert abs(date.now() - datetime.now(UTC) - ahead) < timedelta(seconds=1)
    assert date.now().tzinfo is UTC
    assert difference(2.0) == ""
    assert difference(-30.2).startswith("the clock of this machine is 30 seconds ahead of the server's")
    assert difference(3600).startswith("the clock of this machine is 3,600 seconds behind the server's")
