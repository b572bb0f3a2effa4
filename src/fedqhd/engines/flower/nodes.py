"""Which client is at which node. Nodes come and go, and each introduces its client once."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from time import monotonic, sleep
from types import MappingProxyType

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedqhd.core.errors import FedQHDError
from fedqhd.engines.flower.answers import content_of
from fedqhd.engines.flower.grid import Mailbox, Patience
from fedqhd.engines.flower.records import Introduction, read_introduction, write_greeting
from fedqhd.engines.flower.schema import MOST_CLIENTS
from fedqhd.federation import Participant, Terms
from fedqhd.federation.terms import misfits, shapes
from fedqhd.federation.validate import Refused, need

log = logging.getLogger(__name__)

HELLO, GLANCE = Patience(quorum=0.0, grace=60.0), Patience(quorum=0.0)
"""How long to wait for introductions: for nodes that have just joined and may have to load their programs first, and
for those that were asked before."""


class Nodes:
    """The nodes of a grid and the clients at them."""

    def __init__(
        self,
        grid: Grid,
        run: str,
        greeting: Mapping[str, str],
        world: str,
        patience: Patience,
        nodes: Mapping[int, int] | None,
        one_encoder: bool,
        least_rows: int,
    ) -> None:
        """Know no node yet; the arguments are those of `FlowerEngine`."""
        self.grid, self.run, self.greeting, self.world = grid, run, greeting, world
        self.patience, self.nodes, self.one_encoder, self.least_rows = patience, nodes, one_encoder, least_rows
        self.introductions: dict[int, Introduction] = {}
        """The first introduction of each client."""
        self._mailbox = Mailbox(grid)
        self._node: dict[int, int] = {}
        """The node of each connected client."""
        self._client: dict[int, int | None] = {}
        """The client at each node; None for a node that was refused."""
        self._count = MOST_CLIENTS
        self._terms: Terms | None = None

    def gather(
        self, count: int, limit: float = math.inf, known: Mapping[int, Introduction] = MappingProxyType({})
    ) -> list[Participant]:
        """Wait until clients 0 to count - 1 are connected, and return their introductions.

        A run that resumes knows its clients. It waits for them as a round waits for replies: once a quorum is
        connected, the others have the grace period to come, and they may join later.

        Args:
            count: The number of clients.
            limit: Seconds to wait.
            known: How clients introduced themselves when the run began.

        Raises:
            FedQHDError: If a client is missing after `limit` seconds.
        """
        end, missed, self._count = monotonic() + limit, count + 1, count
        self.introductions |= known
        enough = end_of_grace = math.inf
        if known.keys() >= set(range(count)):
            enough = math.ceil(self.patience.quorum * count)
        while True:
            self.update_nodes()
            missing = [i for i in range(count) if i not in self._node] or self._misfits()
            if len(self._node) < enough:
                end_of_grace = math.inf
            elif end_of_grace == math.inf:
                end_of_grace = monotonic() + self.patience.grace
            if not missing or monotonic() >= end_of_grace:
                members = [self.introductions[i].member for i in range(count)]
                self._terms = Terms.of(members)
                return members
            if len(missing) < missed:
                log.info("waiting for %d of %d clients: %s", len(missing), count, ", ".join(map(str, missing)))
                missed = len(missing)
            if monotonic() >= end:
                raise FedQHDError(
                    f"of clients={count} these had not joined after {limit:g} seconds: "
                    f"{', '.join(map(str, missing))}; start them, or wait longer"
                )
            sleep(max(0.0, min(self.patience.poll, end - monotonic())))

    def _misfits(self) -> list[int]:
        """Refuse the nodes of clients that do not fit the others or the settings, and return these clients."""
        members = {i: self.introductions[i].member for i in self._node}
        found = misfits(members, self.one_encoder, self.least_rows)
        for client, sentence in found.items():
            self._client[self._node.pop(client)] = None
            del self.introductions[client]
            self.refuse(Refused("fingerprint", f"client {client} does not fit: {sentence}"))
        return list(found)

    def update_nodes(self) -> None:
        """Ask new nodes which client they are, and forget nodes that are gone."""
        present = set(self.grid.get_node_ids())
        self._node = {client: node for client, node in self._node.items() if node in present}
        self._client = {node: client for node, client in self._client.items() if node in present}
        self._mailbox.keep(present)
        unknown = present - self._client.keys()
        asked = self._mailbox.send(
            Message(self._hello(), node, MessageType.QUERY)
            for node in sorted(unknown - set(self._mailbox.open.values()))
        )
        self._mailbox.open |= asked
        # Wait only if new nodes were asked just now; those that have not answered earlier may take their time.
        hellos = {i: node for i, node in self._mailbox.open.items() if node in unknown}
        for node, answer in self._mailbox.wait(hellos, HELLO if asked else GLANCE):
            self._client[node] = None
            try:
                self._welcome(node, read_introduction(content_of(answer)))
            except Exception as why:
                self.refuse(why)

    def _hello(self) -> RecordDict:
        return write_greeting({**self.greeting, "run": self.run, "world": self.world})

    def refuse(self, why: Exception) -> None:
        """Log why a node is refused. Its operator may fix the cause and let it join again."""
        log.warning("a node is refused: %s", why)

    def _welcome(self, node: int, introduction: Introduction) -> None:
        client = introduction.client
        need(client < self._count, "client", f"it says that it is client {client}, but there are {self._count}")
        if self.nodes is not None and self.nodes.get(node) != client:
            raise Refused("key", f"it says that it is client {client}, but has the key of another")
        first = self.introductions.get(client, introduction)
        for what, own, due in (
            ("other anchors, scaling or actions than the server", introduction.world, self.world),
            ("another encoder than it began with", introduction.member.fingerprint, first.member.fingerprint),
            ("parameters of other shapes than it began with", *(shapes(i.member.like) for i in (introduction, first))),
        ):
            if own != due:
                raise Refused("fingerprint", f"client {client} has {what}: {own}, but should have {due}")
        if client in self._node and introduction.name != first.name:
            raise Refused("taken", f"client {client} is connected from another place: give another number")
        log.info("client %d has joined", client)
        self.introductions[client] = first._replace(name=introduction.name)
        self._node[client], self._client[node] = node, client
