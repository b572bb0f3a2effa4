"""A port that strangers cannot fill: when too many connections are open, a new one takes the place of an idle one.

The limits hold from the moment at which a connection is accepted, before any encryption is agreed on.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import uvicorn
from uvicorn import Config  # by name, because `supernode` replaces the one in the package

from fedqhd.deploy.guard import App

IDLE = 15.0
"""Seconds within which a new connection must have been served."""
LEAVING = 1.0
"""Seconds in which the loop closes a dismissed connection."""
SHARE = 0.5
"""The share of the connections that one other machine may hold."""

Peer = tuple[str, int]


class Visitor(NamedTuple):
    """An open connection."""

    connection: socket.socket
    since: float
    """When it was opened or last served."""
    served: bool = False
    dismissed: float = 0.0
    """When it was told to give way; 0 if it was not."""

    def rank(self) -> tuple[bool, bool, float]:
        """Return the order in which connections give way: those never served first, then the longest idle."""
        return self.dismissed > 0, self.served, self.since


class Visitors:
    """The open connections of a port."""

    def __init__(self, most: int, idle: float = IDLE) -> None:
        """Make a list of no connections.

        Args:
            most: How many there may be.
            idle: Seconds after which one that has not been served is closed.
        """
        self.most, self.idle = most, idle
        self.open: dict[Peer, Visitor] = {}

    def ready(self) -> bool:
        """Tell whether a connection can be accepted now, rather than after dismissed ones have been closed."""
        self.open = {p: v for p, v in self.open.items() if v.connection.fileno() >= 0}
        leaving = sum(monotonic() < v.dismissed + LEAVING for v in self.open.values() if v.dismissed)
        return leaving < max(1, self.most // 4)

    def enter(self, connection: socket.socket, peer: Peer) -> bool:
        """Add a connection, and dismiss another one if there are too many; tell whether there is room for it."""
        remote = connection.getsockname()[0] != peer[0]
        same = {p: v for p, v in self.open.items() if p[0] == peer[0]} if remote else {}
        crowd = same if len(same) >= max(1, self.most * SHARE) else self.open if len(self.open) >= self.most else {}
        if crowd:
            self._dismiss(min(crowd, key=lambda p: crowd[p].rank()))
        if len(self.open) >= 2 * self.most:  # none of the dismissed ones has been closed
            return False
        self.open[peer] = Visitor(connection, monotonic())
        return True

    def served(self, peer: Peer) -> None:
        """Note that a request on a connection has been answered without an error."""
        visitor = self.open.get(peer)
        if visitor is not None:
            self.open[peer] = visitor._replace(since=monotonic(), served=True)

    def sweep(self) -> None:
        """Close the connections that have not been served in time."""
        for peer, visitor in list(self.open.items()):
            if not (visitor.served or visitor.dismissed) and monotonic() > visitor.since + self.idle:
                self._dismiss(peer)

    def _dismiss(self, peer: Peer) -> None:
        visitor = self.open[peer]
        self.open[peer] = visitor._replace(dismissed=monotonic())
        with suppress(OSError):
            visitor.connection.shutdown(socket.SHUT_RDWR)  # the loop sees its end and closes it


class Listener(socket.socket):
    """A listening socket that enters its connections in a list."""

    __slots__ = ("visitors",)
    visitors: Visitors

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection, or leave it in the queue of the system while others are being closed."""
        if not self.visitors.ready():
            raise BlockingIOError("connections are being closed")
        connection, address = super().accept()
        if not self.visitors.enter(connection, address[:2]):
            connection.close()
            raise BlockingIOError("there are too many connections")
        return connection, address


def listen(host: str, port: int, visitors: Visitors) -> Listener:
    """Listen on a port."""
    listener = Listener(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.visitors = visitors
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


class Server(uvicorn.Server):
    """A web server whose connections are limited."""

    visitors: Visitors

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the server is told to stop."""
        await super().serve([listen(self.config.host, self.config.port, self.visitors)])

    async def on_tick(self, counter: int) -> bool:
        """Close idle connections, ten times a second."""
        self.visitors.sweep()
        return await super().on_tick(counter)


def make_server(app: App, visitors: Visitors, **options: Any) -> Server:
    """Return a server for an application.

    Args:
        app: The application.
        visitors: The list of its connections, empty.
        options: What `uvicorn.Config` takes.
    """
    # Other loops accept connections by themselves, and nothing here speaks WebSocket.
    server = Server(Config(app, **{**options, "loop": "asyncio", "ws": "none"}))
    server.visitors = visitors
    return server
