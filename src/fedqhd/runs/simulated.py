"""The clients of a run as nodes of Flower's simulation."""

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
from fedqhd.runs.checkpoint import nodes
from fedqhd.runs.private import largest


@lru_cache(maxsize=1)
def public_of(c: Config) -> Public:
    """Made once in each process of the simulation, which compiles its kernels then, before any clock runs."""
    warm_up(c)
    return make_public(c)


def open_site(c: Config, folder: Path, context: Context, greeting: Mapping[str, Any]) -> Site:
    """The client of a simulated node: what it would be in any run with these settings."""
    index, public = int(context.node_config["partition-id"]), public_of(c)
    client = make_client(c, index, public)
    return Site(
        client, member(client), public.fingerprint(), partial(make_federation, c, public=public),
        client_folder(folder, index), uplink=c.get("uplink", "full"), largest=largest(c),
    )  # fmt: skip


def start(c: Config, clients: Sequence[LocalClient], world: World, **options: Any) -> SimulationEngine:
    folder = nodes(c.folder.absolute())
    app = make_client_app(partial(open_site, c, folder))
    simulated = Simulation(app, len(clients))
    fingerprint = world.public.fingerprint()
    return SimulationEngine(
        simulated.grid, clients, folder, "run", fingerprint, simulated.stop, largest=largest(c), **options
    )
