"""Rounds over a Flower grid: nodes introduce themselves once, then each round sends every client one message."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence, Set
from time import monotonic, process_time, sleep
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedqhd.agents.client import LocalClient, ignore
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Episode, Payload, Reply
from fedqhd.engines.flower import masked
from fedqhd.engines.flower.answers import OnAbsent, content_of, log_absence
from fedqhd.engines.flower.grid import Mailbox, Patience
from fedqhd.engines.flower.records import (
    METRICS,
    Introduction,
    Order,
    read_introduction,
    read_reply,
    read_trial,
    write_greeting,
    write_order,
)
from fedqhd.federation import Participant, Terms
from fedqhd.federation.validate import Refused
from fedqhd.federation.wrappers.settings import SECURE_CLIENTS

T = TypeVar("T")
log = logging.getLogger(__name__)

HELLO, GLANCE = Patience(quorum=0.0, grace=60.0), Patience(quorum=0.0)
"""How long to wait for introductions: for nodes that have just joined and may have to load their programs first, and
for those that were asked before."""
EXCHANGE = "flower/exchange"


class FlowerEngine:
    """Clients behind a Flower grid, which may be a network, a simulation or this process.

    A node tells the number of its client. Nodes come and go, and a client may return on another node. Clients keep
    their own state: every order names the exchange of the run, and the client continues from its state before it.
    """

    def __init__(
        self,
        grid: Grid,
        run: str,
        greeting: Mapping[str, str],
        world: str,
        *,
        patience: Patience = Patience(),  # noqa: B008
        nodes: Mapping[int, int] | None = None,
        secure_range: float | None = None,
        on_episode: Callable[[Episode], None] = ignore,
        on_absent: OnAbsent = log_absence,
    ) -> None:
        """Make an engine; call `gather` before the first round.

        Args:
            grid: Flower's connection to the nodes.
            run: The name of the run.
            greeting: What a node must know to make its client, sent with every message.
            world: The fingerprint that a node's anchors, scaling and actions must have.
            patience: How long a round waits for replies.
            nodes: The client number of each node id, if the nodes have keys; None lets every node choose.
            secure_range: The largest absolute value in a reply with secure aggregation; None sends replies unmasked.
            on_episode: Called after each round with every training episode of it.
            on_absent: Called for every client whose reply did not come.
        """
        self.grid, self.run, self.greeting, self.world = grid, run, greeting, world
        self.patience, self.nodes, self.on_episode, self.on_absent = patience, nodes, on_episode, on_absent
        self.secure_range = secure_range
        self.exchange = 0
        self.introductions: dict[int, Introduction] = {}
        """The first introduction of each client."""
        self.outcomes: dict[int, Mapping[str, Any]] = {}
        """The final evaluation of each client, as it reported it."""
        self._mailbox = Mailbox(grid)
        self._node: dict[int, int] = {}
        """The node of each connected client."""
        self._client: dict[int, int | None] = {}
        """The client at each node; None for a node that was refused."""
        self._terms: Terms | None = None
        self._cpu = 0.0

    def gather(self, count: int, limit: float = math.inf) -> list[Participant]:
        """Wait until clients 0 to count - 1 are connected, and return their introductions.

        Args:
            count: The number of clients.
            limit: Seconds to wait.

        Raises:
            FedQHDError: If a client is missing after `limit` seconds.
        """
        end, missed = monotonic() + limit, count + 1
        while True:
            self.update_nodes()
            missing = [i for i in range(count) if i not in self._node]
            if not missing:
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
        if self.nodes is not None and self.nodes.get(node) != client:
            raise Refused("key", f"it says that it is client {client}, but has the key of another")
        first = self.introductions.get(client, introduction)
        for what, own, due in (
            ("other anchors, scaling or actions than the server", introduction.world, self.world),
            ("another encoder than it began with", introduction.member.fingerprint, first.member.fingerprint),
        ):
            if own != due:
                raise Refused("fingerprint", f"client {client} has {what}: {own}, but should have {due}")
        log.info("client %d has joined", client)
        self.introductions[client] = first
        self._node[client], self._client[node] = node, client

    def orders(
        self, kind: str, teacher: Payload | None, episodes: int = 0, clients: Sequence[int] | None = None,
        trial: Trial | None = None,
    ) -> dict[int, Message]:  # fmt: skip
        """Write the messages of the next exchange. Clients that are away or still owe an answer are left out.

        A trial leaves the clients as they were, so it is no exchange of its own, and nobody is missed in it.

        Args:
            kind: Flower's message type, TRAIN or EVALUATE.
            teacher: The teacher to install; None in the first round.
            episodes: The number of episodes to train.
            clients: The clients to ask; None asks all.
            trial: The question to ask instead of training, or None.

        Returns:
            The message to each client, by client number.
        """
        assert self._terms is not None, "clients are gathered before they are asked for anything"
        content = write_order(Order(self.run, self.exchange, episodes, self._terms, teacher, trial), self.greeting)
        on_absent = self.on_absent if trial is None else log_absence
        messages = {}
        for client in sorted(self.introductions if clients is None else clients):
            if client not in self._node:
                on_absent(client, "away", "it is not connected")
            elif self._node[client] in self._mailbox.open.values():
                on_absent(client, "busy", "it has not yet answered the previous message")
            else:
                messages[client] = Message(content, self._node[client], kind, group_id=str(self.exchange))
        self.exchange += trial is None
        return messages

    def read(self, client: int, answer: Message) -> Reply | None:
        """Read the reply of a client. If there is none, call `on_absent` with the reason and return None."""
        try:
            reply, cpu = read_reply(content_of(answer))
            if reply.client != client:
                raise Refused("client", f"it says that it is client {reply.client!r:.20}")
        except Refused as why:
            self.on_absent(client, why.kind, str(why))
        except Exception as error:
            self.on_absent(client, "unreadable", f"its reply cannot be read ({type(error).__name__}: {error})")
        else:
            self._cpu += cpu
            return reply
        return None

    def _ask(self, questions: Mapping[int, Message]) -> dict[int, Message]:
        """Send the messages and return the answers that come in time, by client."""
        who = {question.metadata.dst_node_id: client for client, question in questions.items()}
        answers = {who[node]: answer for node, answer in self._mailbox.ask(questions.values(), self.patience)}
        return dict(sorted(answers.items()))

    def _exchange(self, questions: Mapping[int, Message]) -> dict[int, Message]:
        """Send the messages of an exchange, and report who has not answered in time."""
        answers = self._ask(questions)
        self._miss(questions.keys() - answers.keys())
        return answers

    def _miss(self, silent: Set[int]) -> None:
        for client in sorted(silent):
            self.on_absent(client, "silent", "it has not answered in time")

    def _read_all(self, answers: Mapping[int, Message]) -> list[Reply]:
        read = [self.read(client, answer) for client, answer in answers.items()]
        return [reply for reply in read if reply is not None]

    def _masked(self, questions: Mapping[int, Message], secure_range: float) -> list[Reply]:
        """Return replies that all carry the mean in place of their own arrays, so that their mean is the same."""
        if len(questions) < SECURE_CLIENTS:  # the mean would tell a client too much about the others
            for client in questions:
                self.on_absent(client, "masked", f"secure aggregation needs {SECURE_CLIENTS} clients in a round")
            return []
        answers, mean = masked.exchange(self._mailbox, self.patience, questions, secure_range)
        self._miss(questions.keys() - answers.keys())
        replies = self._read_all(answers)
        if mean is None:
            for reply in replies:
                self.on_absent(reply.client, "masked", "the mean of this round could not be unmasked")
            return []
        return [reply._replace(payload=mean) for reply in replies]

    def round(self, teacher: Payload | None, episodes: int, clients: Sequence[int] | None = None) -> list[Reply]:
        self.update_nodes()
        for node, _ in self._mailbox.late():
            log.info("client %s has answered too late; it takes part again from now on", self._client.get(node))
        self._mailbox.remind(self._hello())
        orders = self.orders(MessageType.TRAIN, teacher, episodes, clients)
        replies = (
            self._read_all(self._exchange(orders))
            if self.secure_range is None
            else self._masked(orders, self.secure_range)
        )
        for reply in replies:
            for episode in reply.episodes:
                self.on_episode(episode)
        return replies

    def finish(self, teacher: Payload) -> None:
        self.update_nodes()
        for client, answer in self._exchange(self.orders(MessageType.EVALUATE, teacher)).items():
            try:
                self.outcomes[client] = dict(content_of(answer).metric_records[METRICS])
            except (Refused, KeyError) as why:
                self.on_absent(client, "unfinished", str(why))

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        self.update_nodes()
        returns: dict[int, Array] = {}
        for client, answer in self._ask(self.orders(MessageType.EVALUATE, teacher, trial=trial)).items():
            try:
                returns[client] = read_trial(content_of(answer), trial)
            except (Refused, KeyError, ValueError) as why:
                log_absence(client, "trial", str(why))
        return returns

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """Return nothing, because clients on other machines are out of reach."""
        return []

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process plus what the clients reported."""
        return process_time() + self._cpu

    def state(self) -> Payload:
        """Return the number of the next exchange; the clients keep their own state."""
        return {EXCHANGE: np.array(self.exchange)}

    def restore(self, arrays: Payload) -> None:
        self.exchange = int(arrays.get(EXCHANGE, 0))

    def close(self) -> None: ...
