"""Flower's SuperNode behind a guard, `python -m fedqhd.deploy.supernode`.

The SuperNode listens on loopback for the programs that answer messages. Only they, which know the secret of the node,
may use that port.
"""

from __future__ import annotations

from typing import Any

import httpx
import uvicorn

from fedqhd.deploy.clock import use_steady_clock
from fedqhd.deploy.connections import Server, Visitors, make_server
from fedqhd.deploy.guard import App, Guard
from fedqhd.deploy.nodes import CLIENT_HEADER
from fedqhd.deploy.rules import read_rules
from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported

FINAL = ("certificate", "wrong_version_number")
"""What the messages of errors contain that do not pass: a wrong certificate, and a server without encryption."""


def passing(error: httpx.TransportError) -> httpx.TransportError:
    """Return an error after which Flower tries again, unless it is one that does not pass.

    Flower gives up at whatever mentions SSL, also at a connection that broke while its encryption was being agreed on,
    and its node then neither works nor ends.
    """
    if any(word in str(error).lower() for word in FINAL):
        return error
    return type(error)("the connection broke")


def main() -> None:
    """Run Flower's SuperNode with a guard before its port, and by the clock of the federation."""
    from flwr.supernode.cli.flower_supernode import flower_supernode

    rules = read_rules()

    def config(app: App, **options: Any) -> Server:
        visitors = Visitors(rules.connections)
        return make_server(Guard(app, rules.secret, served=visitors.served), visitors, **options)

    class Client(httpx.Client):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.headers[CLIENT_HEADER] = rules.client

        def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            try:
                return super().send(request, **options)
            except httpx.TransportError as error:
                raise passing(error) from error

    # Flower makes its server as uvicorn.Server(uvicorn.Config(...)), and its only client talks to the SuperLink.
    uvicorn.Config, uvicorn.Server = config, lambda server: server  # type: ignore[assignment, misc, return-value]
    httpx.Client = Client  # type: ignore[misc]
    use_steady_clock(rules.epoch)
    flower_supernode()


if __name__ == "__main__":
    main()
