"""The server's program, `fedqhd.deploy.server:app`, which the SuperLink starts for a run.

The run-config holds the file of settings (config) and how long the server waits for clients.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from fedqhd.core.blas import single_threaded
from fedqhd.core.config import Config
from fedqhd.core.engine import Engine
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.deploy.settings import RUN_NAME, check_server, greeting, needs_one_encoder
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import Patience
from fedqhd.engines.flower.records import Introduction, read_introduction, write_introduction
from fedqhd.engines.flower.schema import ABOUT
from fedqhd.envs.make import spaces_of
from fedqhd.envs.public import make_public
from fedqhd.federation import Terms
from fedqhd.federation.method import method_of
from fedqhd.federation.validate import Refused
from fedqhd.report.figures import curves
from fedqhd.report.terminal import Progress, closing
from fedqhd.runs.build import World, make_federation, make_server
from fedqhd.runs.callback import Callback, Training
from fedqhd.runs.checkpoint import Parties
from fedqhd.runs.config import resolve
from fedqhd.runs.folder import claim
from fedqhd.runs.limits import check_size
from fedqhd.runs.outcome import Outcome
from fedqhd.runs.private import secure_range
from fedqhd.runs.run import conduct

app = ServerApp()
log = logging.getLogger("fedqhd")

CLIENTS = "clients.json"
"""The file in the folder of a run that holds how its clients introduced themselves."""


def run_name(folder: Path, resume: bool) -> str:
    """Return the random name of a run, by which clients tell it from others. A resumed run keeps its name."""
    path = folder / RUN_NAME
    if resume and path.exists():
        return path.read_text().strip()
    name = secrets.token_hex(4)
    write_bytes(path, f"{name}\n".encode())
    return name


def known_clients(folder: Path) -> dict[int, Introduction]:
    """Return how the clients of a run introduced themselves when it began; none if that is not known."""
    try:
        told = json.loads((folder / CLIENTS).read_bytes())
        found = [read_introduction(RecordDict({ABOUT: ConfigRecord(about)})) for about in told]
    except FileNotFoundError:
        return {}
    except (Refused, ValueError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s is damaged and is not used: %s", folder / CLIENTS, error)
        return {}
    return {introduction.client: introduction for introduction in found}


def remember_clients(folder: Path, introductions: Mapping[int, Introduction]) -> None:
    """Write down how the clients of a run introduced themselves, but for the secret names of their folders."""
    told = [dict(write_introduction(i._replace(name="")).config_records[ABOUT]) for i in introductions.values()]
    write_bytes(folder / CLIENTS, json.dumps(told).encode())


class Options(NamedTuple):
    """The contents of a run-config."""

    config: Config
    patience: Patience
    wait: float
    """Seconds to wait for all clients to join."""
    resume: bool
    nodes: dict[int, int] | None
    """The client number of each node id; None if nodes have no keys."""


def serve(options: Options, grid: Grid, *callbacks: Callback) -> dict[str, Any]:
    """Wait for all clients, train, and return the summary."""
    c, patience, wait, resume, nodes = options
    training = Training(c, callbacks)
    spaces = spaces_of(c.env)
    check_size(c, (), spaces.n, spaces.actions)
    with single_threaded():
        public = make_public(c)
        world_print = public.fingerprint()
        engine = FlowerEngine(
            grid, run_name(c.folder, resume), greeting(c), world_print, patience=patience, nodes=nodes,
            one_encoder=needs_one_encoder(c), least_rows=method_of(c).least_rows, secure_range=secure_range(c),
            on_episode=training.tell_episode,
        )  # fmt: skip
        members = engine.gather(c.clients, wait, known_clients(c.folder) if resume else {})
        remember_clients(c.folder, engine.introductions)
        server = make_server(c, members, public)
        engine.on_absent, engine.longest, engine.repeat = server.record_absence, server.longest, server.repeat
        world = World(public, make_federation(c, Terms.of(members), public), [], members)
        return conduct(training, Parties(engine, server), world, resume, outcomes)


def outcomes(engine: Engine) -> list[Outcome]:
    """Return the evaluations that the clients reported, with a return of NaN for those that were away at the end."""
    assert isinstance(engine, FlowerEngine)
    unknown = {"greedy": [math.nan], "nominal": [], "updates": 0, "alarms": None}
    return [Outcome(**{**unknown, **engine.outcomes.get(client, {})}) for client in sorted(engine.introductions)]


def options(run: Mapping[str, Any]) -> Options:
    """Read a run-config.

    Raises:
        FedQHDError: If it names no file of settings, or if these settings do not suit a federation.
    """
    file = str(run.get("config", ""))
    if not file:
        raise FedQHDError("run-config lacks config: give a file of settings with -c 'config=\"FILE\"'")
    overrides = {"out": str(run["out"])} if run.get("out") else {}
    c = resolve(overrides, file)
    check_server(c)
    patience = Patience(float(run["quorum"]), float(run["grace"]), float(run["limit"]), float(run["poll"]))
    pairs = [pair.split(":") for pair in str(run["nodes"]).split()]
    nodes = {int(node): int(client) for node, client in pairs} or None
    return Options(c, patience, float(run["wait"]), bool(run["resume"]), nodes)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation and log to the file that the run-config names, or to the standard output."""
    path = str(context.run_config["log"])
    with open(path, "a", buffering=1) if path else nullcontext(sys.stdout) as log:
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=log)
        logging.getLogger("fedqhd").setLevel(logging.INFO)
        run_federation(grid, context.run_config, Console(file=log))


def run_federation(grid: Grid, run: Mapping[str, Any], console: Console) -> None:
    """Run the federation that a run-config describes, and report its progress, summary and errors on a console."""
    try:
        parsed = options(run)
        claim(parsed.config, False, parsed.resume)
        with Progress(console) as progress:
            summary = serve(parsed, grid, progress)
        curves(parsed.config.folder)
        closing(console, summary)
    except FedQHDError as error:
        console.print(f"fedqhd: {error}", highlight=False, soft_wrap=True)
        raise
