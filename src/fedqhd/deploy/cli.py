"""The command line of `fedqhd federate`. It imports Flower only when a command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.trust import FLAG


def add_federate(commands: Any, add_settings: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add `federate` and its subcommands to the command line.

    Args:
        commands: The subparsers of the main parser.
        add_settings: Adds a flag for each setting to a parser.
    """
    federate = commands.add_parser("federate", help="run a federation across machines, on Flower", allow_abbrev=False)
    parts = federate.add_subparsers(dest="part", required=True, metavar="PART")

    server = parts.add_parser(
        "server", help="serve a federation", allow_abbrev=False,
        usage="fedqhd federate server [--config FILE] [--keys FOLDER] [--SETTING VALUE ...]",
        description="Serve a federation of --clients clients, which join with 'fedqhd federate client'. The settings "
        "are those of 'fedqhd train'; settings of how a client learns belong in the client's own file.",
    )  # fmt: skip
    insecure = "do without keys and encryption, on a network that you trust"
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    server.add_argument("--port", type=int, default=9093, help="port to listen on (9093)")
    server.add_argument("--keys", default="", metavar="FOLDER", help="the server's keys; required outside loopback")
    server.add_argument("--insecure", action="store_true", help=insecure)
    server.add_argument("--wait", type=float, default=600.0, help="seconds to wait for all clients to join (600)")
    server.add_argument(
        "--quorum", type=float, default=0.5,
        help="share of the clients whose replies are enough to end a round after --grace (0.5)",
    )  # fmt: skip
    server.add_argument(
        "--grace", type=float, default=30.0, help="seconds to wait for the other clients after the quorum (30)"
    )
    server.add_argument("--limit", type=float, default=3600.0, help="longest duration of a round in seconds (3600)")
    server.add_argument("--config", default="", metavar="FILE", help="TOML file of settings")
    server.add_argument("--overwrite", action="store_true", help="replace the run that --out holds")
    server.add_argument("--resume", action="store_true", help="resume the run that --out holds")
    server.add_argument("--trust", action="store_true", help=FLAG)
    add_settings(server)

    client = parts.add_parser("client", help="join a federation as a client", allow_abbrev=False)
    client.add_argument("--server", required=True, metavar="HOST:PORT", help="where the server listens")
    client.add_argument("--client", type=int, required=True, help="number of this client, from 0")
    client.add_argument("--state-dir", required=True, metavar="FOLDER", help="folder for its state and its model")
    client.add_argument("--config", default="", metavar="FILE", help="TOML file of its own settings")
    client.add_argument("--keys", default="", metavar="FOLDER", help="the client's keys; required outside loopback")
    client.add_argument("--insecure", action="store_true", help=insecure)
    client.add_argument("--port", type=int, default=0, help="port on loopback for its own programs (any free port)")
    client.add_argument(
        "--epsilon", type=float, default=None,
        help="largest epsilon that all its answers may spend; then it refuses to answer (default: no limit)",
    )  # fmt: skip
    client.add_argument(
        "--encoder-seed", type=int, default=None, metavar="SEED",
        help="seed of its encoder, for reproducible runs (default: a random one, which stays in --state-dir)",
    )  # fmt: skip

    keys = parts.add_parser(
        "keys", help="make the keys of a federation", allow_abbrev=False,
        description="Make a certificate authority, the server's certificate and a key for each client. Copy "
        "FOLDER/server to the server and FOLDER/client-0 to client 0; ca.key stays where it is. Run again on the same "
        "folder, the command makes a new certificate for the server, and keys for clients that have none.",
    )  # fmt: skip
    keys.add_argument("folder", metavar="FOLDER")
    keys.add_argument("--clients", type=int, required=True, help="number of clients")
    keys.add_argument("--host", nargs="+", default=[], help="names and addresses by which clients reach the server")
    keys.add_argument("--days", type=float, default=365.0, help="days for which the certificate is valid (365)")


def run_federate(args: argparse.Namespace, settings: Callable[[], Config]) -> None:
    """Run `fedqhd federate`.

    Args:
        args: The parsed arguments.
        settings: Returns the settings of the run; only the server calls it.
    """
    if find_spec("flwr") is None:
        raise FedQHDError("fedqhd federate needs Flower: install it with pip install 'fedqhd[flower]'")
    from fedqhd.deploy.commands import Waits, serve
    from fedqhd.deploy.join import join
    from fedqhd.deploy.keys import make_keys
    from fedqhd.deploy.settings import resume_command

    if args.part == "keys":
        make_keys(Path(args.folder), args.clients, args.host, args.days)
        print(
            f"copy {args.folder}/server to the server, {args.folder}/client-0 to client 0, and so on; keep ca.key here"
        )
        return
    security = {"keys": Path(args.keys) if args.keys else None, "insecure": args.insecure}
    if args.part == "client":
        own = {"epsilon": args.epsilon, "encoder_seed": args.encoder_seed}
        join(args.server, args.client, Path(args.state_dir), args.config, args.port, **security, **own)
        return
    config = settings()
    waits = Waits(args.wait, args.quorum, args.grace, args.limit)
    try:
        serve(config, args.host, args.port, waits, **security, overwrite=args.overwrite, resume=args.resume)
    except KeyboardInterrupt as stop:
        stop.add_note(f"; resume with: {resume_command(config)}")
        raise
    print(f"results in {config.folder}: config.toml metrics.jsonl summary.json curves.png")
