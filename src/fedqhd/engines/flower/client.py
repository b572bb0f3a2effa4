"""The ClientApp: a client that keeps itself on its own disk, since every message may find a new process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from threadpoolctl import threadpool_limits

from fedqhd.agents.client import LocalClient
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import checkpoints, number_of, read_checkpoint, write_checkpoint
from fedqhd.core.protocols import Federation
from fedqhd.engines.flower.masked import is_masked, mask, write_masked
from fedqhd.engines.flower.records import (
    ABOUT,
    METRICS,
    Introduction,
    Order,
    read_order,
    write_introduction,
    write_reply,
)
from fedqhd.federation import Participant, Terms

log = logging.getLogger(__name__)

KEPT = 3
"""States kept: a server that was killed goes back a round, and two where its last checkpoint was damaged."""


class Site(NamedTuple):
    """A client at home."""

    client: LocalClient
    member: Participant
    world: str
    """Fingerprint of what it takes the public world to be."""
    federation: Callable[[Terms], Federation]
    folder: Path
    measure: Callable[[LocalClient], Mapping[str, Any]] | None = None
    """What the client finds out about itself in the end, where nobody else can."""
    uplink: str = "full"
    """The code that its federation rounds reports to, in which they travel."""
    largest: float | None = None
    """With secure aggregation, the largest number that its replies may have. It then replies to masked orders alone."""


Open = Callable[[Context, Mapping[str, Any]], Site]
"""Makes the client of a node anew, of what the node knows and of the greeting of the server."""


def make_client_app(open_site: Open) -> ClientApp:
    app = ClientApp(mods=[mask])

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        site = open_site(context, message.content.config_records[ABOUT])
        return Message(write_introduction(Introduction(site.client.index, site.member, site.world)), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        began = process_time()
        # Bits of a matrix product depend on the number of BLAS threads; one is as fast at these sizes.
        with threadpool_limits(1):
            site, order = take_up(open_site, message, context)
            if is_masked(message.content) == (site.largest is None):
                raise FedQHDError("the server and this client do not agree on whether replies are masked")
            reply = site.client.round(site.federation(order.terms), order.teacher, order.episodes)
            save(site, order)
        returns = [episode.ret for episode in reply.episodes]
        log.info("client %d: exchange %d, mean return %.1f", reply.client, order.exchange, sum(returns) / len(returns))
        cpu = process_time() - began
        if site.largest is not None:
            return Message(write_masked(reply, cpu, site.largest), reply_to=message)
        return Message(write_reply(reply, cpu, site.uplink), reply_to=message)

    @app.evaluate()
    def finish(message: Message, context: Context) -> Message:
        with threadpool_limits(1):
            site, order = take_up(open_site, message, context)
            if order.teacher is not None:
                site.federation(order.terms).install(site.client, order.teacher)
            save(site, order)
            measured = dict(site.measure(site.client)) if site.measure else {}
        return Message(RecordDict({METRICS: MetricRecord(measured)}), reply_to=message)

    return app


def take_up(open_site: Open, message: Message, context: Context) -> tuple[Site, Order]:
    """The client as it was before this exchange; what it did in it or after, for a server that has since forgotten, is
    dropped."""
    order = read_order(message.content)
    site = open_site(context, message.content.config_records[ABOUT])
    for path in checkpoints(site.folder):
        if number_of(path) > order.exchange:
            path.unlink()
    found = read_checkpoint(site.folder)
    if found is not None:
        site.client.restore(found.arrays)
    return site, order


def save(site: Site, order: Order) -> None:
    write_checkpoint(site.folder, order.exchange + 1, site.client.state(), {"run": order.run}, KEPT)
