"""Flower's SuperLink, of which other machines see the part that is for nodes: `python -m fedqhd.deploy.superlink`.

It serves everything on one port: what nodes need, and what starts runs, registers nodes' keys and talks to the
server's own program. Whoever could reach the latter could run programs of their own on every machine of the federation.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

import uvicorn

from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported

FOR_NODES = re.compile("/v1/fleet/[a-z-]+")

Scope = MutableMapping[str, Any]
Channel = Callable[..., Awaitable[Any]]
App = Callable[[Scope, Channel, Channel], Awaitable[None]]


def same_machine(scope: Scope) -> bool:
    """Whether a request comes from where it goes to. No other machine can hold a connection under these addresses."""
    client, server = (scope.get(side) or ("",) for side in ("client", "server"))
    return bool(client[0]) and (client[0] == server[0] or ip_address(client[0]).is_loopback)


def guarded(app: App) -> App:
    """The same service, but other machines get nothing of it except what is for nodes."""

    async def guard(scope: Scope, receive: Channel, send: Channel) -> None:
        if scope["type"] == "lifespan" or FOR_NODES.fullmatch(scope["path"]) or same_machine(scope):
            await app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"for this machine only"})

    return guard


def main() -> None:
    from flwr.superlink.cli.flower_superlink import flower_superlink

    serve = uvicorn.run

    def run(app: App, **options: Any) -> None:
        serve(guarded(app), **options)

    uvicorn.run = run  # type: ignore[assignment]
    flower_superlink()


if __name__ == "__main__":
    main()
