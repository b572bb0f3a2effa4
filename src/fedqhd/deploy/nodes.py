"""Which nodes the server lets in, and which of their messages."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Collection
from datetime import datetime
from time import monotonic

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from fedqhd.deploy.guard import Headers, Refusal

NOT_ADMITTED = 2004
"""Flower's number for a node that is not admitted."""
CLIENT_HEADER = "x-fedqhd-client"
"""Holds the number of a client and a name of its folder, which a client that is started again keeps."""
SILENCE = 60.0
"""Seconds after which a client that says nothing is taken for gone. Nodes send a sign of life every 24 seconds."""
TAKEN = "is connected from another place"
REMEMBERED = 1000
"""The number of sessions and of pieces of arrays whose sizes are remembered."""


class Nodes:
    """Admits the nodes of a server."""

    def __init__(self, keys: Collection[str], most: int, unpacked: int, clock: Callable[[], float]) -> None:
        """Make a check.

        Args:
            keys: The public keys of the nodes that are served, as they are sent; none if every node is served.
            most: The largest number of bytes in a request.
            unpacked: The largest number of bytes in the arrays of one reply.
            clock: The server's time.
        """
        self.keys, self.most, self.unpacked, self.clock = frozenset(keys), most, unpacked, clock
        self._seats: dict[str, tuple[str, float]] = {}
        """The folder of each connected client, and when it was last heard of."""
        self._pieces: dict[str, int] = {}
        """The sizes of pieces of arrays."""
        self._unpacked: dict[str, int] = {}
        """The bytes to which the arrays of a session unpack."""

    def admit(self, path: str, headers: Headers) -> Refusal | None:
        """Refuse nodes with unknown keys or wrong signatures, and second ones with the number of a client."""
        if self.keys and headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER) not in self.keys:
            return Refusal(412, "the server does not know the key of this node", NOT_ADMITTED)
        if self.keys and not self._signed(headers):
            return Refusal(401, "the signature of the node is not valid now")
        client, _, folder = headers.get(CLIENT_HEADER, "").partition(" ")
        if not client:
            return None
        holder, heard = self._seats.get(client, (folder, 0.0))
        if holder != folder and monotonic() < heard + SILENCE:
            return Refusal(
                412,
                f"client {client} {TAKEN}: give another --client, or wait a minute if that one was killed",
                NOT_ADMITTED,
            )
        if path.endswith("/deactivate-node"):
            self._seats.pop(client, None)
        else:
            self._seats[client] = folder, monotonic()
        return None

    def _signed(self, headers: Headers) -> bool:
        """Tell whether the time in the head of a request is signed and recent, which Flower checks again later."""
        try:
            stamp = headers[TIMESTAMP_HEADER]
            age = self.clock() - datetime.fromisoformat(stamp).timestamp()
            key = bytes_to_public_key(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True))
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            recent = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
            return recent and verify_signature(key, stamp.encode("ascii"), signature)
        except (KeyError, ValueError, TypeError):
            return False

    def accept(self, path: str, body: bytes) -> Refusal | None:
        """Refuse arrays that unpack to more than a reply can need.

        An array is a list of pieces, and a piece may be named in it any number of times.
        """
        if not path.endswith("/push-object"):
            return None
        try:
            request = PushObjectRequest.FromString(body)
            content = request.object_content
            kind, children, length = get_object_head_values_from_object_content(content)
            if kind == "ArrayChunk":
                remember(self._pieces, request.object_id, len(content))
            if kind != "Array":
                return None
            named = json.loads(content[len(content) - length :])["arraychunk_ids"]
            unpacked = sum(self._pieces.get(children[i], self.most) for i in named)
        except Exception as error:  # anything may come
            return Refusal(400, f"this is not an object of a reply ({type(error).__name__})")
        unpacked += self._unpacked.get(request.session_id, 0)
        if unpacked > self.unpacked:
            return Refusal(413, f"the arrays of a reply have at most {self.unpacked:,} bytes")
        remember(self._unpacked, request.session_id, unpacked)
        return None


def remember(sizes: dict[str, int], name: str, size: int) -> None:
    """Note a size, and forget the oldest one if there are too many."""
    sizes[name] = size
    if len(sizes) > REMEMBERED:
        del sizes[next(iter(sizes))]
