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

    # Flower makes its server as uvicorn.Server(uvicorn.Config(...)), and its only client talks to the SuperLink.
    uvicorn.Config, uvicorn.Server = config, lambda server: server  # type: ignore[assignment, misc, return-value]
    httpx.Client = Client  # type: ignore[misc]
    use_steady_clock(rules.epoch)
    flower_supernode()


if __name__ == "__main__":
    main()
