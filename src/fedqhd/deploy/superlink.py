"""Flower's SuperLink with a guard, `python -m fedqhd.deploy.superlink`: other machines reach only the part for nodes.

The SuperLink serves everything on one port: the interface for nodes, and the one that starts runs, registers keys of
nodes and talks to the server's program. Anyone who reached the latter could run programs on every machine of the
federation.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

import uvicorn

from fedqhd.deploy.keys import ServerKeys
from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported

FOR_NODES = re.compile("/v1/fleet/[a-z-]+")

Scope = MutableMapping[str, Any]
Channel = Callable[..., Awaitable[Any]]
App = Callable[[Scope, Channel, Channel], Awaitable[None]]


def same_machine(scope: Scope) -> bool:
    """Tell whether a request comes from this machine. No other machine can hold a connection with these addresses."""
    client, server = (scope.get(side) or ("",) for side in ("client", "server"))
    return bool(client[0]) and (client[0] == server[0] or ip_address(client[0]).is_loopback)


def guarded(app: App) -> App:
    """Return the service with a guard that answers other machines 403 unless the request is one of a node."""

    async def guard(scope: Scope, receive: Channel, send: Channel) -> None:
        if scope["type"] == "lifespan" or FOR_NODES.fullmatch(scope["path"]) or same_machine(scope):
            await app(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"for this machine only"})

    return guard


def secured(keys: ServerKeys) -> list[str]:
    """Return the arguments that make the SuperLink encrypt connections and authenticate nodes."""
    files = {"ca-certfile": keys.ca, "certfile": keys.certificate, "keyfile": keys.key}
    return [*(f"--ssl-{name}={path}" for name, path in files.items()), "--enable-supernode-auth"]


def register(address: str, keys: ServerKeys) -> str:
    """Register the clients' public keys with the SuperLink, so that it serves no other nodes.

    Args:
        address: The address of the SuperLink, HOST:PORT.
        keys: The server's keys.

    Returns:
        The node id of each client, as "NODE:CLIENT NODE:CLIENT ...".
    """
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    nodes = []
    version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    with ControlHttpClient.from_server_address(address, False, str(keys.ca), interceptors=[version]) as control:
        for client, path in keys.clients.items():
            public = public_key_to_bytes(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
            answer = control.RegisterNode(RegisterNodeRequest(public_key=public, name=f"client-{client}"))
            nodes.append(f"{answer.node_id}:{client}")
    return " ".join(nodes)


def main() -> None:
    """Run Flower's SuperLink with `guarded` around its service."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    serve = uvicorn.run

    def run(app: App, **options: Any) -> None:
        serve(guarded(app), **options)

    uvicorn.run = run  # type: ignore[assignment]
    flower_superlink()


if __name__ == "__main__":
    main()
