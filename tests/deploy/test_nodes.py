"""Which nodes the server lets in, and which of their messages."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime

import numpy as np
import pytest

pytest.importorskip("flwr")

import httpx
from flwr.app import Array
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message
from flwr.supercore.retry import make_simple_http_retry_invoker

from fedqhd.deploy.join import NodeEnd, run_node
from fedqhd.deploy.nodes import CLIENT_HEADER, SILENCE, Nodes
from fedqhd.deploy.rules import PIECE, REPLY
from fedqhd.deploy.supernode import passing

FLEET = "/v1/fleet/push-object"


def keyed_head(private, public, at, **more):
    stamp = datetime.fromtimestamp(at, UTC).isoformat()
    return {
        "flwr-public-key": b64encode(public_key_to_bytes(public)).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": b64encode(sign_message(private, stamp.encode())).decode(),
        **more,
    }


def test_with_keys_nothing_of_a_stranger_is_read():
    (private, public), (other, stranger) = generate_key_pairs(), generate_key_pairs()
    nodes = Nodes([b64encode(public_key_to_bytes(public)).decode()], 1000, 1000, lambda: 1e9)
    assert nodes.admit(FLEET, keyed_head(private, public, 1e9)) is None
    unknown = nodes.admit(FLEET, keyed_head(other, stranger, 1e9))
    assert (unknown.status, json.loads(unknown.body())["code"]) == (412, 2004)
    assert nodes.admit(FLEET, {}).status == 412
    for head in (
        keyed_head(other, public, 1e9),  # signed by another
        keyed_head(private, public, 1e9 + 30),  # not yet
        keyed_head(private, public, 1e9 - 400),  # sent again by somebody who has seen it
        {**keyed_head(private, public, 1e9), "flwr-signature": "x"},
        {**keyed_head(private, public, 1e9), "flwr-timestamp": "soon"},
    ):
        assert nodes.admit(FLEET, head).status == 401


def test_a_second_client_with_the_same_number_is_refused_while_the_first_is_heard_of(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("fedqhd.deploy.nodes.monotonic", lambda: now[0])
    nodes = Nodes((), 1000, 1000, time.time)
    activate = "/v1/fleet/activate-node"
    assert nodes.admit(activate, {CLIENT_HEADER: "0 here"}) is None
    assert nodes.admit(activate, {CLIENT_HEADER: "1 there"}) is None
    refusal = nodes.admit(activate, {CLIENT_HEADER: "0 there"})
    assert refusal.sentence.startswith("client 0 is connected from another place: give another --client")
    assert nodes.admit(activate, {CLIENT_HEADER: "0 here"}) is None  # started again
    now[0] += SILENCE - 1
    assert nodes.admit(FLEET, {CLIENT_HEADER: "0 here"}) is None
    now[0] += SILENCE - 1
    assert nodes.admit(activate, {CLIENT_HEADER: "0 there"}) is not None
    now[0] += 2
    assert nodes.admit(activate, {CLIENT_HEADER: "0 there"}) is None  # the first has died
    assert nodes.admit("/v1/fleet/deactivate-node", {CLIENT_HEADER: "0 there"}) is None
    assert nodes.admit(activate, {CLIENT_HEADER: "0 here"}) is None  # the second has left


def pushed(content, name, session="s"):
    return PushObjectRequest(object_id=name, object_content=content, session_id=session).SerializeToString()


def test_arrays_that_repeat_a_piece_may_not_unpack_to_more_than_a_reply_needs():
    nodes = Nodes((), 10**6, 10**6, time.time)
    chunk = b"ArrayChunk  100000\0" + bytes(100_000)
    assert nodes.accept(FLEET, pushed(chunk, "piece")) is None

    def array(times):
        body = json.dumps({"dtype": "uint8", "shape": [1], "stype": "numpy.ndarray", "arraychunk_ids": [0] * times})
        return f"Array piece {len(body)}".encode() + b"\0" + body.encode()

    assert nodes.accept(FLEET, pushed(array(1000), "a")).status == 413
    assert nodes.accept(FLEET, pushed(array(6), "b")) is None
    assert nodes.accept(FLEET, pushed(array(6), "c")).status == 413  # together with the one before
    assert nodes.accept(FLEET, pushed(array(6), "c", session="another")) is None
    assert nodes.accept(FLEET, pushed(b"Array x 5\0nojson", "d")).status == 400
    assert nodes.accept("/v1/fleet/pull-messages", b"anything") is None


def test_what_clients_send_is_accepted():
    nodes = Nodes((), PIECE, REPLY, time.time)
    for size in (1, 1000, 2_000_000):
        for name, part in get_all_nested_objects(Array(np.zeros(size))).items():
            assert nodes.accept(FLEET, pushed(part.deflate(), name)) is None


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)", False),
        ("_ssl.c:989: The handshake operation timed out", False),
        ("[Errno 104] Connection reset by peer", False),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)", True),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", True),
    ],
)
def test_a_connection_that_breaks_while_its_encryption_is_agreed_on_is_tried_again(said, final):
    for kind in (httpx.ConnectError, httpx.ReadError, httpx.ConnectTimeout):
        error = passing(kind(said))
        assert type(error) is kind
        assert str(error) == (said if final else "the connection broke")
        # Negative control: this is how Flower decides.
        gives_up = make_simple_http_retry_invoker().should_giveup
        assert gives_up(error) is final
        assert gives_up(kind(said)) is ("ssl" in said.lower())


def test_a_node_that_has_given_up_is_not_waited_for(tmp_path, capsys):
    (tmp_path / "flower").mkdir()
    for line in ("ERROR : SSL/TLS handshake error detected.", "Giving up reconnection after 6.13 seconds and 5 tries."):
        code = f"import time; print('SuperNode ID: 3', flush=True); print({line!r}, flush=True); time.sleep(600)"
        end = run_node([sys.executable, "-c", code], tmp_path / "flower", 0, tmp_path, 0.0)
        assert end == NodeEnd(trained=False, connected=True, refused=0.0)
        assert end.reason(tmp_path) == "the server is gone"
