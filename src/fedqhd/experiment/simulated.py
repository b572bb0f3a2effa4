"""The clients of a run as nodes of Flower's simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedqhd.client import LocalClient
from fedqhd.engines.flower.client import Site, make_client_app
from fedqhd.engines.flower.simulation import Simulation, SimulationEngine, client_folder
from fedqhd.experiment.build import Public, World, make_client, make_federation, make_public, member
from fedqhd.experiment.config import Config


@lru_cache(maxsize=1)
def public_of(c: Config) -> Public:
    """Made once in each process of the simulation."""
    return make_public(c)


def open_site(c: Config, folder: Path, context: Context, greeting: Mapping[str, Any]) -> Site:
    """The client of a simulated node: what it would be in any run with these settings."""
    index, public = int(context.node_config["partition-id"]), public_of(c)
    client = make_client(c, index, public)
    return Site(
        client, member(client), public.fingerprint(), partial(make_federation, c, public=public),
        client_folder(folder, index),
    )  # fmt: skip


def nodes_folder(c: Config) -> Path:
    return c.folder.absolute() / "nodes"


def start(c: Config, clients: Sequence[LocalClient], world: World, **options: Any) -> SimulationEngine:
    app = make_client_app(partial(open_site, c, nodes_folder(c)))
    simulated = Simulation(app, len(clients))
    fingerprint = world.public.fingerprint()
    return SimulationEngine(simulated.grid, clients, nodes_folder(c), "run", fingerprint, simulated.stop, **options)
