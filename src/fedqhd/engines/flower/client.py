"""The ClientApp. A client keeps its state on its own disk, because every message may be handled by a new process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from threadpoolctl import threadpool_limits

from fedqhd.agents.client import LocalClient, Measure, measure_nothing
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
    write_trial,
)
from fedqhd.federation import Participant, Terms

log = logging.getLogger(__name__)

KEPT_STATES = 3
"""The number of states that a client keeps. A server that was killed resumes one round back, or two if its last
checkpoint is damaged."""


class Site(NamedTuple):
    """A client and what its node needs to serve it."""

    client: LocalClient
    member: Participant
    """How it introduces itself to the server."""
    world: str
    """The fingerprint of the anchors, scaling and actions that it uses."""
    federation: Callable[[Terms], Federation]
    folder: Path
    """Where it keeps its state."""
    measure: Measure = measure_nothing
    """Evaluates the client during training."""
    close: Callable[[LocalClient], Mapping[str, Any]] | None = None
    """Saves and evaluates the trained client on its own machine; None if the server can do so."""
    uplink: str = "full"
    """The number format to which its federation rounds reports, and in which they are sent."""
    secure_range: float | None = None
    """The largest absolute value in its replies with secure aggregation; it then answers only masked orders. None
    without secure aggregation."""


OpenSite = Callable[[Context, Mapping[str, Any]], Site]
"""(the node's context, the server's greeting) -> the node's client, newly made."""


def make_client_app(open_site: OpenSite, *mods: Mod) -> ClientApp:
    """Return the ClientApp of nodes whose clients `open_site` makes, once for every message.

    `mods` are called around it, as Flower's mods are.
    """
    app = ClientApp(mods=[*mods, mask])

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        site = open_site(context, message.content.config_records[ABOUT])
        return Message(write_introduction(Introduction(site.client.index, site.member, site.world)), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        began = process_time()
        # The bits of a matrix product depend on the number of BLAS threads, and one thread is as fast at these sizes.
        with threadpool_limits(1):
            site, order = restore_site(open_site, message, context)
            if is_masked(message.content) == (site.secure_range is None):
                raise FedQHDError(
                    "the server and this client disagree on whether replies are masked: give both the same secure="
                )
            reply = site.client.round(site.federation(order.terms), order.teacher, order.episodes)
            save(site, order)
        returns = [episode.ret for episode in reply.episodes]
        log.info("client %d: exchange %d, mean return %.1f", reply.client, order.exchange, sum(returns) / len(returns))
        cpu = process_time() - began
        if site.secure_range is not None:
            return Message(write_masked(reply, cpu, site.secure_range), reply_to=message)
        return Message(write_reply(reply, cpu, site.uplink), reply_to=message)

    @app.evaluate()
    def finish(message: Message, context: Context) -> Message:
        with threadpool_limits(1):
            site, order = restore_site(open_site, message, context)
            if order.trial is not None and order.teacher is not None:
                returns = site.client.trial(site.federation(order.terms), order.teacher, site.measure, order.trial)
                return Message(write_trial(returns), reply_to=message)
            if order.teacher is not None:
                site.federation(order.terms).install(site.client, order.teacher)
            save(site, order)
            measured = dict(site.close(site.client)) if site.close else {}
        return Message(RecordDict({METRICS: MetricRecord(measured)}), reply_to=message)

    return app


def restore_site(open_site: OpenSite, message: Message, context: Context) -> tuple[Site, Order]:
    """Make the client and restore its state from before this exchange.

    Later states are deleted: they belong to a server that was killed and has resumed from an earlier round.
    """
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
    """Write the client's state after an exchange to its folder."""
    write_checkpoint(site.folder, order.exchange + 1, site.client.state(), {"run": order.run}, KEPT_STATES)
