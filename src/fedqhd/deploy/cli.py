"""The arguments of `fedqhd federate`; Flower is not imported before something is to be done."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedqhd.experiment.config import Config
from fedqhd.interfaces import FedQHDError


def add_federate(commands: Any, add_settings: Callable[[argparse.ArgumentParser], None]) -> None:
    federate = commands.add_parser("federate", help="a federation across machines, on Flower", allow_abbrev=False)
    parts = federate.add_subparsers(dest="part", required=True, metavar="PART")

    server = parts.add_parser(
        "server", help="serve a federation", allow_abbrev=False,
        description="Serve a federation of --clients clients, which join by 'fedqhd federate client'. Settings as for "
        "train; how a client learns is for its own file to say.",
    )  # fmt: skip
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    server.add_argument("--port", type=int, default=9093, help="port to listen on (9093)")
    server.add_argument("--wait", type=float, default=600.0, help="seconds to wait for all clients to join (600)")
    server.add_argument("--quorum", type=float, default=0.5, help="share of the clients whose replies are enough (0.5)")
    server.add_argument("--grace", type=float, default=30.0, help="... after so many more seconds (30)")
    server.add_argument("--limit", type=float, default=3600.0, help="seconds that a round lasts at the most (3600)")
    server.add_argument("--config", default="", metavar="FILE", help="TOML file of settings")
    server.add_argument("--overwrite", action="store_true", help="replace the run that --out holds")
    server.add_argument("--resume", action="store_true", help="go on with the run that --out holds")
    add_settings(server)

    client = parts.add_parser("client", help="be a client of a federation", allow_abbrev=False)
    client.add_argument("--server", required=True, metavar="HOST:PORT", help="where the server listens")
    client.add_argument("--client", type=int, required=True, help="which client this is, from 0")
    client.add_argument("--state-dir", required=True, metavar="FOLDER", help="where it keeps itself, and its model")
    client.add_argument("--config", default="", metavar="FILE", help="TOML file of its own settings")
    client.add_argument("--port", type=int, default=0, help="port on loopback for its own programs (any that is free)")


def run_federate(args: argparse.Namespace, settings: Callable[[], Config]) -> None:
    if find_spec("flwr") is None:
        raise FedQHDError("fedqhd federate needs Flower: install it with pip install 'fedqhd[flower]'")
    from fedqhd.deploy.commands import Waits, how_to_go_on, join, serve

    if args.part == "client":
        join(args.server, args.client, Path(args.state_dir), args.config, args.port)
        return
    config = settings()
    waits = Waits(args.wait, args.quorum, args.grace, args.limit)
    try:
        serve(config, args.host, args.port, waits, overwrite=args.overwrite, resume=args.resume)
    except KeyboardInterrupt as stop:
        stop.add_note(f"; go on with: {how_to_go_on(config)}")
        raise
    print(f"results in {config.folder}: config.toml metrics.jsonl summary.json curves.png")
