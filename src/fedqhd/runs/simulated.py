"""Runs the clients of a run as nodes of Flower's simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedqhd.agents.client import LocalClient
from fedqhd.core.config import Config
from fedqhd.engines.flower.client import Site, make_client_app
from fedqhd.engines.flower.simulation import Simulation, SimulationEngine, client_folder
from fedqhd.envs.public import Public, make_public
from fedqhd.runs.build import World, make_client, make_federation, member, warm_up
from fedqhd.runs.checkpoint import nodes_folder
from fedqhd.runs.outcome import measure
from fedqhd.runs.private import secure_range


@lru_cache(maxsize=1)
def public_of(c: Config) -> Public:
    """Make what all clients share, once per process of the simulation."""
    return make_public(c)


def open_site(c: Config, folder: Path, context: Context, greeting: Mapping[str, Any]) -> Site:
    """Make the client of a simulated node, the same as on any other engine."""
    index, public = int(context.node_config["partition-id"]), public_of(c)
    client = make_client(c, index, public)
    warm_up(c, [client])
    return Site(
        client, member(client), public.fingerprint(), partial(make_federation, c, public=public),
        client_folder(folder, index), partial(measure, c, public.scaler), uplink=c.get("uplink", "full"),
        secure_range=secure_range(c),
    )  # fmt: skip


def start(c: Config, clients: Sequence[LocalClient], world: World, **options: Any) -> SimulationEngine:
    """Start the simulation of a run and return its engine; `options` are further arguments of `FlowerEngine`."""
    folder = nodes_folder(c.folder.absolute())
    app = make_client_app(partial(open_site, c, folder))
    simulated = Simulation(app, len(clients))
    fingerprint = world.public.fingerprint()
    return SimulationEngine(
        simulated.grid, clients, folder, "run", fingerprint, simulated.stop, secure_range=secure_range(c), **options
    )
