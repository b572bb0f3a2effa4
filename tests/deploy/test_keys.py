"""Keys and certificates: what they open, and what is said when they do not fit."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("flwr")

from cryptography import x509

from fedqhd.core.errors import FedQHDError
from fedqhd.deploy import join
from fedqhd.deploy.keys import check_certificate, client_keys, make_keys, make_server_certificate, server_keys
from fedqhd.deploy.probe import server_time
from fedqhd.ui.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder, 2, ["robot.lan", "10.0.0.5"], 30)
    return folder


@pytest.fixture
def keys(made, tmp_path):
    return shutil.copytree(made, tmp_path / "keys")


@contextmanager
def serving(folder, host="127.0.0.1"):
    """A server with the certificate of a folder; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    with listening(host) as listener:

        def answer():
            while True:
                try:
                    context.wrap_socket(listener.accept()[0], server_side=True).close()
                except ssl.SSLError:
                    pass
                except OSError:
                    return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]


@contextmanager
def listening(host="127.0.0.1"):
    with socket.create_server((host, 0)) as listener:
        yield listener
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def answering(**headers):
    """A web server without TLS that refuses everything; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(403)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_client_learns_the_time_of_its_server():
    with answering(x_fedqhd_time="1000.25") as port:
        assert abs(server_time("127.0.0.1", port, None) - 1000.25) < 1
    with answering() as port:  # a SuperLink of somebody else, whose answers have a date as all answers do
        assert abs(server_time("127.0.0.1", port, None) - time.time()) < 2


def test_a_client_without_keys_at_an_encrypted_port_says_so(made):
    with serving(made / "server") as port, pytest.raises(FedQHDError, match=r"encrypts its connections: give --keys"):
        server_time("127.0.0.1", port, None)


def test_a_client_with_keys_at_a_port_without_encryption_says_so(made):
    with answering() as port, pytest.raises(FedQHDError, match=r"does not speak TLS .*was it started with --keys"):
        server_time("127.0.0.1", port, made / "ca.crt")


def test_each_machine_has_a_folder_with_what_it_needs_and_no_more(made):
    there = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert there == {
        "ca.crt", "ca.key", "server/ca.crt", "server/server.crt", "server/server.key", "server/client-0.pub",
        "server/client-1.pub", "client-0/ca.crt", "client-0/client.key", "client-1/ca.crt", "client-1/client.key",
    }  # fmt: skip
    for path in made.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    certificate = x509.load_pem_x509_certificate((made / "server" / "server.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["robot.lan", "localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["10.0.0.5", "127.0.0.1"]
    server_keys(made / "server", 2)
    client_keys(made / "client-1")


def test_once_more_keeps_what_clients_have_and_renews_the_certificate(keys):
    before = {path: path.read_bytes() for path in keys.rglob("*") if path.is_file()}
    make_keys(keys, 3, [], 30)
    changed = {str(path.relative_to(keys)) for path in before if path.read_bytes() != before[path]}
    assert changed == {"server/server.crt", "server/server.key"}
    with serving(keys / "server") as port:
        check_certificate("127.0.0.1", port, keys / "client-0" / "ca.crt")
    server_keys(keys / "server", 3)


def test_a_certificate_in_order_is_taken(made):
    with serving(made / "server") as port:
        check_certificate("127.0.0.1", port, made / "client-0" / "ca.crt")
        check_certificate("localhost", port, made / "client-0" / "ca.crt")


def test_a_certificate_of_another_authority_is_refused(made, tmp_path):
    make_keys(tmp_path, 1, [], 1)
    with serving(made / "server") as port, pytest.raises(FedQHDError, match=r"127\.0\.0\.1:\d+ is refused \(.*cert"):
        check_certificate("127.0.0.1", port, tmp_path / "client-0" / "ca.crt")


def test_an_expired_certificate_is_refused_on_both_sides(keys):
    make_server_certificate(keys, [], timedelta(hours=-1))
    with pytest.raises(FedQHDError, match=r"server.crt expired on \d+ \w+ \d{4}: make a new one"):
        server_keys(keys / "server", 2)
    with (
        serving(keys / "server") as port,
        pytest.raises(
            FedQHDError, match=r"refused \(certificate has expired\).*by the clock of this machine it is \d+ \w+ \d{4}"
        ),
    ):
        check_certificate("127.0.0.1", port, keys / "client-0" / "ca.crt")


def test_a_certificate_for_another_name_is_refused(keys):
    """The server of these keys is 127.0.0.1; a client that knows it as 127.0.0.2 cannot know that it is the same."""
    other = "127.0.0.2"
    with serving(keys / "server", other) as port, pytest.raises(FedQHDError, match=r"refused .*127\.0\.0\.2"):
        check_certificate(other, port, keys / "client-0" / "ca.crt")


def test_a_server_without_tls_is_told_from_one_with(made):
    with listening() as listener:

        def answer():
            connection = listener.accept()[0]
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(FedQHDError, match=r"does not speak TLS .*was it started with --keys"):
            check_certificate("127.0.0.1", listener.getsockname()[1], made / "ca.crt")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("keys k --clients 0", "clients=0 is not possible"),
        ("keys k --clients 1 --days 0", "days=0 is not possible"),
        ("keys k --clients 1 --host http://robot", "host='http://robot' is neither a name nor an address"),
        ("server --host 0.0.0.0", "host='0.0.0.0' is not on loopback: give --keys"),
        ("server --keys nowhere", "keys='{here}/nowhere' lacks ca.crt, server.crt, server.key, client-0.pub"),
        ("server --keys {made}/server --clients 3", "lacks client-2.pub: fedqhd federate keys makes them"),
        ("client --server robot:9093 --client 0 --state-dir x", "server='robot' is not on loopback"),
        ("client --server robot:9093 --client 0 --state-dir x --keys {made}/server", "lacks client.key"),
    ],
)
def test_what_is_wrong_with_keys_is_said_before_anything_starts(made, tmp_path, monkeypatch, capsys, command, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["federate", *command.format(made=made).split()]) == 2
    said = capsys.readouterr().err
    assert sentence.format(here=tmp_path) in said
    assert said.count("\n") == 1
    assert not [
        path for path in tmp_path.rglob("*") if path.suffix != ".key" and path.name != "ca.crt" and path.is_file()
    ]


def test_a_client_whose_key_stays_unknown_gives_up(tmp_path, monkeypatch, capsys):
    node = tmp_path / "node"
    node.write_text(
        "#!/bin/sh\necho 'Failed to initialize the connection: [code: 2004] Failed to activate SuperNode.'\n"
    )
    node.chmod(0o700)
    monkeypatch.setattr(join, "SUPERNODE", (str(node),))
    monkeypatch.setattr(join, "adopt_orphans", lambda: None)
    monkeypatch.setattr(join, "RETRY", 0.1)
    monkeypatch.setattr(join, "GIVE_UP", 0.5)
    with pytest.raises(
        FedQHDError, match="refuses client 3: it does not know the client's key, or another node uses it"
    ), answering() as port:  # fmt: skip
        join.join(f"127.0.0.1:{port}", 3, tmp_path / "state", "")
    assert "client 3: the server refuses its key so far; trying again" in capsys.readouterr().out


def test_mixed_up_files_are_said(keys):
    shutil.copy(keys / "ca.key", keys / "server" / "server.key")
    with pytest.raises(FedQHDError, match=r"cannot be used: .*mismatch"):
        server_keys(keys / "server", 2)
    (keys / "server" / "server.crt").write_text("no certificate")
    with pytest.raises(FedQHDError, match="cannot be used"):
        server_keys(keys / "server", 2)
