"""The ClientApp. A client keeps its state on its own disk, because every message may be handled by a new process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedqhd.agents.client import LocalClient, Measure, measure_nothing
from fedqhd.core.blas import single_threaded
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import checkpoints, number_of, read_checkpoint, write_checkpoint
from fedqhd.core.protocols import Federation
from fedqhd.engines.flower.account import Account
from fedqhd.engines.flower.masked import is_masked, mask, write_masked
from fedqhd.engines.flower.records import (
    Introduction,
    Order,
    read_greeting,
    read_order,
    write_introduction,
    write_reply,
    write_trial,
)
from fedqhd.engines.flower.schema import ABOUT, METRICS
from fedqhd.federation import Participant, Terms, unwrapped
from fedqhd.federation.validate import check_teacher

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
    account: Account | None = None
    """What it has answered with differential privacy; None without it, or if the noise is that of an experiment."""
    secure_range: float | None = None
    """The largest absolute value in its replies with secure aggregation; it then answers only masked orders. None
    without secure aggregation."""
    name: str = ""
    """A name of its folder that only the server learns; "" in a simulation."""


OpenSite = Callable[[Context, Mapping[str, Any]], Site]
"""(the node's context, the server's greeting) -> the node's client, newly made."""


def make_client_app(open_site: OpenSite, *mods: Mod) -> ClientApp:
    """Return the ClientApp of nodes whose clients `open_site` makes, once for every message.

    `mods` are called around it, as Flower's mods are.
    """
    app = ClientApp(mods=[*mods, mask])

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        site = open_site(context, read_greeting(message.content))
        introduction = Introduction(site.client.index, site.member, site.world, site.name)
        return Message(write_introduction(introduction), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        began = process_time()
        with single_threaded():
            site, order = restore_site(open_site, message, context)
            if is_masked(message.content) == (site.secure_range is None):
                raise FedQHDError(
                    "the server and this client disagree on whether replies are masked: give both the same secure="
                )
            if site.account:
                site.account.check(order)
            reply = site.client.round(federation_of(site, order), order.teacher, order.quota)
            if site.account:
                reply = site.account.settle(order, reply)
            save(site, order)
        returns = [episode.ret for episode in reply.episodes]
        earned = f"mean return {sum(returns) / len(returns):.1f}" if returns else "no episode has ended"
        log.info("client %d: exchange %d, %s", reply.client, order.exchange, earned)
        if site.account:
            log.info("client %d: %s", reply.client, site.account)
        cpu = process_time() - began
        if site.secure_range is not None:
            return Message(write_masked(reply, cpu, site.secure_range), reply_to=message)
        return Message(write_reply(reply, cpu, site.uplink), reply_to=message)

    @app.evaluate()
    def finish(message: Message, context: Context) -> Message:
        with single_threaded():
            site, order = restore_site(open_site, message, context)
            if order.trial is not None and order.teacher is not None:
                returns = site.client.trial(federation_of(site, order), order.teacher, site.measure, order.trial)
                return Message(write_trial(returns), reply_to=message)
            if order.teacher is not None:
                federation_of(site, order).install(site.client, order.teacher)
            save(site, order)
            measured = dict(site.close(site.client)) if site.close else {}
        return Message(RecordDict({METRICS: MetricRecord(measured)}), reply_to=message)

    return app


def restore_site(open_site: OpenSite, message: Message, context: Context) -> tuple[Site, Order]:
    """Make the client and restore its state from before this exchange.

    Later states are deleted: they belong to a server that was killed and has resumed from an earlier round.
    """
    order = read_order(message.content, message.metadata.message_type == MessageType.TRAIN)
    site = open_site(context, message.content.config_records[ABOUT])
    for path in checkpoints(site.folder):
        if number_of(path) > order.exchange:
            path.unlink()
    found = read_checkpoint(site.folder)
    if found is not None:
        site.client.restore(found.arrays)
    return site, order


def federation_of(site: Site, order: Order) -> Federation:
    """Make the federation that an order is about. Raises FedQHDError if its teacher cannot be installed."""
    federation = site.federation(order.terms)
    if order.teacher is not None:
        check_teacher(unwrapped(federation), order.teacher)
    return federation


def save(site: Site, order: Order) -> None:
    """Write the client's state after an exchange to its folder."""
    write_checkpoint(site.folder, order.exchange + 1, site.client.state(), {"run": order.run}, KEPT_STATES)
