"""Flower's SuperLink behind a guard, `python -m fedqhd.deploy.superlink`.

The SuperLink serves everything on one port: the interface for nodes, and the one that starts runs, registers keys of
nodes and talks to the server's program. Anyone who reached the latter could run programs on every machine of the
federation.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import uvicorn

from fedqhd.deploy.clock import steady, use_steady_clock
from fedqhd.deploy.connections import Visitors, make_server
from fedqhd.deploy.guard import SECRET_HEADER, App, Guard
from fedqhd.deploy.keys import ServerKeys
from fedqhd.deploy.nodes import Nodes
from fedqhd.deploy.rules import Rules, read_rules
from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported


def secured(keys: ServerKeys) -> list[str]:
    """Return the arguments that make the SuperLink encrypt connections and authenticate nodes."""
    files = {"ca-certfile": keys.ca, "certfile": keys.certificate, "keyfile": keys.key}
    return [*(f"--ssl-{name}={path}" for name, path in files.items()), "--enable-supernode-auth"]


def public_keys(keys: ServerKeys) -> dict[int, bytes]:
    """Return the public key of each client in the form in which nodes send it."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    return {
        client: public_key_to_bytes(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]
        for client, path in keys.clients.items()
    }


def sent_keys(keys: ServerKeys) -> tuple[str, ...]:
    """Return the public keys of all clients as they are sent in the head of a request."""
    return tuple(b64encode(key).decode() for key in public_keys(keys).values())


class WithSecret:
    """Adds the secret of the run to the requests of one of Flower's clients."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Add the secret to a request and pass it on."""
        context.request.headers[SECRET_HEADER] = self.secret
        return call_next(context)


def register(address: str, keys: ServerKeys, secret: str) -> str:
    """Register the clients' public keys with the SuperLink, so that it serves no other nodes.

    Args:
        address: The address of the SuperLink, HOST:PORT.
        keys: The server's keys.
        secret: The secret of the run.

    Returns:
        The node id of each client, as "NODE:CLIENT NODE:CLIENT ...".
    """
    from flwr.proto.control_pb2 import RegisterNodeRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    nodes = []
    extras: list[Any] = [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), WithSecret(secret)]
    with ControlHttpClient.from_server_address(address, False, str(keys.ca), interceptors=extras) as control:
        for client, public in public_keys(keys).items():
            answer = control.RegisterNode(RegisterNodeRequest(public_key=public, name=f"client-{client}"))
            nodes.append(f"{answer.node_id}:{client}")
    return " ".join(nodes)


def guarded(app: App, rules: Rules, visitors: Visitors) -> Guard:
    """Return the SuperLink's service behind a guard."""
    clock = steady(rules.epoch)
    nodes = Nodes(rules.keys, rules.most, rules.unpacked, clock)
    return Guard(
        app, rules.secret, rules.names, nodes=nodes, most=rules.most, clock=clock, served=visitors.served
    )  # fmt: skip


def main() -> None:
    """Run Flower's SuperLink with a guard before its service, and by the clock of the federation."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    rules = read_rules()

    def run(app: App, **options: Any) -> None:
        visitors = Visitors(rules.connections)
        make_server(guarded(app, rules, visitors), visitors, **options).run()

    uvicorn.run = run  # type: ignore[assignment]
    use_steady_clock(rules.epoch)
    flower_superlink()


if __name__ == "__main__":
    main()
