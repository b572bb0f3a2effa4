"""The guard before every port that FedQHD opens: who may ask, and how much of a request is read.

A web page may not ask at all, other machines may ask only for what is meant for nodes, and programs of this machine
only with the secret of the run. Nothing of a request but its head is read before that is decided.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from hmac import compare_digest
from ipaddress import ip_address
from time import monotonic
from typing import Any, NamedTuple, Protocol

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""The names of this machine for itself."""
SECRET_HEADER, TIME_HEADER = "x-fedqhd-secret", "x-fedqhd-time"
FOR_NODES = re.compile("/v1/fleet/[a-z-]+")
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\s]+)(:\d+)?")
BODY_SECONDS = 120.0
"""Seconds within which a request must arrive as a whole."""

Scope = MutableMapping[str, Any]
Channel = Callable[..., Awaitable[Any]]
App = Callable[[Scope, Channel, Channel], Awaitable[None]]
Headers = Mapping[str, str]


class Refusal(NamedTuple):
    """The answer to a request that is not served."""

    status: int
    sentence: str
    code: int | None = None
    """Flower's number for the error, if one of its programs is to show the sentence to its user."""

    def body(self) -> bytes:
        """Return the sentence, as JSON if it has a code."""
        text = self.sentence if self.code is None else json.dumps({"code": self.code, "detail": self.sentence})
        return text.encode()


class NodeCheck(Protocol):
    """What a guard asks about requests of nodes."""

    def admit(self, path: str, headers: Headers) -> Refusal | None:
        """Decide on a request by its head."""

    def accept(self, path: str, body: bytes) -> Refusal | None:
        """Decide on a request by its body, which is no larger than the guard allows."""


def from_a_page(headers: Headers, names: Collection[str]) -> str:
    """Return why a request could come from a web page of another site, or "" if it cannot.

    A site whose name resolves to this machine (DNS rebinding) gives itself away by the header Host, and other sites by
    Origin or Sec-Fetch-Site, which scripts cannot change.

    Args:
        headers: The headers of the request, with names in lower case.
        names: The names by which the port may be addressed; none if they are not known. Then no page may ask at all.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    match = HOST.fullmatch(host)
    name = match[1].strip("[]").lower() if match else ""
    if names and name not in names:
        return f"this port is available as {' or '.join(sorted(names))} only"
    if origin is not None and not (names and origin.partition("://")[2].lower() == host.lower()):
        return "web pages of other sites may not use this port"
    followed = headers.get("sec-fetch-dest") == "document"  # a link to this port, whose page the other site cannot read
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not followed:
        return "web pages of other sites may not use this port"
    return ""


def same_machine(scope: Scope) -> bool:
    """Tell whether a request comes from this machine. No other machine can hold a connection with these addresses."""
    client, server = (scope.get(side) or ("",) for side in ("client", "server"))
    return bool(client[0]) and (client[0] == server[0] or ip_address(client[0]).is_loopback)


class Guard:
    """An ASGI application that passes on to another one only what may be asked."""

    def __init__(
        self,
        app: App,
        secret: str,
        names: Collection[str] = LOOPBACK,
        *,
        nodes: NodeCheck | None = None,
        most: int = 0,
        clock: Callable[[], float] | None = None,
        served: Callable[[tuple[str, int]], None] = lambda peer: None,
    ) -> None:
        """Make a guard.

        Args:
            app: The application behind it.
            secret: What a program of this machine must know.
            names: The names by which the port may be addressed; see `from_a_page`.
            nodes: Decides on requests of nodes; None if the application has no part for nodes.
            most: The largest number of bytes in a request of a node. All that are being read have eight times as many.
            clock: The time that answers carry; None sends none.
            served: Called with the address of each client whose request was answered without an error.
        """
        self.app, self.secret, self.names, self.nodes, self.most = app, secret, names, nodes, most
        self.clock, self.served = clock, served
        self.held = 0
        """The number of bytes of requests that are being read."""

    async def __call__(self, scope: Scope, receive: Channel, send: Channel) -> None:
        """Answer a request, or let the application answer it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        stamped = self._stamped(scope, send)
        refusal = self._decide(scope, headers)
        if refusal is not None:
            await refuse(stamped, refusal)
        elif not self._for_nodes(scope):
            await self.app(scope, receive, stamped)
        else:
            await self._pass_on(scope, headers, receive, stamped)

    def _for_nodes(self, scope: Scope) -> bool:
        return self.nodes is not None and FOR_NODES.fullmatch(scope["path"]) is not None

    def _decide(self, scope: Scope, headers: Headers) -> Refusal | None:
        why = from_a_page(headers, self.names)
        if why:
            return Refusal(403, why)
        if self.nodes is not None and self._for_nodes(scope):
            return self.nodes.admit(scope["path"], headers)
        if not same_machine(scope):
            return Refusal(403, "this is for the server's own machine only")
        if not compare_digest(headers.get(SECRET_HEADER, "").encode(), self.secret.encode()):
            return Refusal(403, "this is for the programs of fedqhd federate only, which know the secret of the run")
        return None

    async def _pass_on(self, scope: Scope, headers: Headers, receive: Channel, send: Channel) -> None:
        """Read a request of a node as far as it is allowed, and let the application answer it."""
        assert self.nodes is not None
        body = bytearray()
        try:
            refusal = await self._read(headers, receive, body) or self.nodes.accept(scope["path"], bytes(body))
            if refusal is not None:
                await refuse(send, refusal)
                return
            whole = {"type": "http.request", "body": bytes(body), "more_body": False}
            parts = iter([whole])

            async def replay() -> Any:
                return next(parts, None) or await receive()

            await self.app(scope, replay, send)
        finally:
            self.held -= len(body)

    async def _read(self, headers: Headers, receive: Channel, body: bytearray) -> Refusal | None:
        """Append the body of a request to `body`, or return why it is not read to its end."""
        too_long = Refusal(413, f"a message of a client has at most {self.most:,} bytes")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.most:
            return too_long
        end = monotonic() + BODY_SECONDS
        while True:
            try:
                message = await asyncio.wait_for(receive(), end - monotonic())
            except TimeoutError:
                return Refusal(408, f"the rest of the message did not come within {BODY_SECONDS:g} seconds")
            piece = message.get("body", b"")
            if len(body) + len(piece) > self.most:
                return too_long
            if self.held + len(piece) > 8 * self.most:
                return Refusal(503, "too many messages at once: try again")
            body += piece
            self.held += len(piece)
            if not message.get("more_body", False):
                return None

    def _stamped(self, scope: Scope, send: Channel) -> Channel:
        """Return `send` such that answers carry the time, and that clients with an answer count as served."""

        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                if self.clock is not None:
                    now = (TIME_HEADER.encode(), f"{self.clock():.3f}".encode())
                    message = {**message, "headers": [*message.get("headers", []), now]}
                if message["status"] < 400 and scope.get("client"):
                    self.served(tuple(scope["client"]))
            await send(message)

        return stamped


async def refuse(send: Channel, refusal: Refusal) -> None:
    """Send a refusal and close the connection, so that the rest of the request is not read."""
    body = refusal.body()
    kind = b"text/plain; charset=utf-8" if refusal.code is None else b"application/json"
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
