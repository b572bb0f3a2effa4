"""The server's program: `fedqhd.deploy.server:app`, started by the SuperLink for a run.

Its run-config says which file of settings it goes by (config) and how long it waits for whom.
"""

from __future__ import annotations

import logging
import math
import secrets
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console
from threadpoolctl import threadpool_limits

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.core.protocols import Engine
from fedqhd.deploy.settings import check_server, greeting
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import Patience
from fedqhd.envs.public import make_public
from fedqhd.federation import Terms
from fedqhd.report.figures import curves
from fedqhd.report.terminal import Progress, closing
from fedqhd.runs.build import World, make_federation, make_server
from fedqhd.runs.checkpoint import Parties
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import Outcome
from fedqhd.runs.private import largest
from fedqhd.runs.run import Listener, claim, conduct

app = ServerApp()


def run_name(folder: Path, resume: bool) -> str:
    """A run has a name, so that its clients can tell it from others; it keeps it when it resumes."""
    path = folder / "run.txt"
    if resume and path.exists():
        return path.read_text().strip()
    name = secrets.token_hex(4)
    write_bytes(path, f"{name}\n".encode())
    return name


class Options(NamedTuple):
    """What its run-config says."""

    config: Config
    patience: Patience
    wait: float
    resume: bool
    nodes: dict[int, int] | None
    """Which client each node is; None where nodes have no keys."""


def serve(options: Options, grid: Grid, listener: Listener) -> dict[str, Any]:
    """A federation from the first introduction to the summary."""
    c, patience, wait, resume, nodes = options
    with threadpool_limits(1):
        public = make_public(c)
        world_print = public.fingerprint()
        engine = FlowerEngine(
            grid, run_name(c.folder, resume), greeting(c), world_print, patience=patience, nodes=nodes,
            largest=largest(c), on_episode=listener.episode,
        )  # fmt: skip
        members = engine.gather(c.clients, wait)
        server = make_server(c, members)
        engine.absent = server.absent
        world = World(public, make_federation(c, Terms.of(members), public), [], members)
        return conduct(c, Parties(engine, server), world, listener, resume, outcomes)


def outcomes(engine: Engine) -> list[Outcome]:
    """What the clients say of themselves; NaN for one that was not there in the end."""
    assert isinstance(engine, FlowerEngine)
    unknown = {"greedy": [math.nan], "nominal": [], "updates": 0, "alarms": None}
    return [Outcome(**{**unknown, **engine.outcomes.get(client, {})}) for client in sorted(engine.introductions)]


def options(run: Mapping[str, Any]) -> Options:
    file = str(run.get("config", ""))
    if not file:
        raise FedQHDError("run-config lacks config: give -c 'config=\"FILE\"', a file of settings")
    given = {"out": str(run["out"])} if run.get("out") else {}
    c = resolve(given, file)
    check_server(c)
    patience = Patience(float(run["quorum"]), float(run["grace"]), float(run["limit"]), float(run["poll"]))
    pairs = [pair.split(":") for pair in str(run["nodes"]).split()]
    nodes = {int(node): int(client) for node, client in pairs} or None
    return Options(c, patience, float(run["wait"]), bool(run["resume"]), nodes)


@app.main()
def main(grid: Grid, context: Context) -> None:
    path = str(context.run_config["log"])
    with open(path, "a", buffering=1) if path else nullcontext(sys.stdout) as log:
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=log)
        logging.getLogger("fedqhd").setLevel(logging.INFO)
        attend(grid, context.run_config, Console(file=log))


def attend(grid: Grid, run: Mapping[str, Any], console: Console) -> None:
    """A federation, and its narration."""
    try:
        given = options(run)
        claim(given.config, False, given.resume)
        with Progress(console) as progress:
            summary = serve(given, grid, progress)
        curves(given.config.folder)
        closing(console, summary)
    except FedQHDError as error:
        console.print(f"fedqhd: {error}", highlight=False, soft_wrap=True)
        raise
