"""Rounds over a Flower grid: nodes introduce themselves once, then a round is one message to each and its reply."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence, Set
from time import monotonic, process_time, sleep
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedqhd.agents.client import LocalClient, ignore
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Payload, Reply
from fedqhd.engines.flower import masked
from fedqhd.engines.flower.grid import Mailbox, Patience
from fedqhd.engines.flower.records import (
    METRICS,
    Introduction,
    Order,
    read_introduction,
    read_reply,
    write_greeting,
    write_order,
)
from fedqhd.federation import Participant, Terms
from fedqhd.federation.validate import Refused

T = TypeVar("T")
log = logging.getLogger(__name__)

Absent = Callable[[int, str, str], None]
"""(client, why in a word, and in a sentence): who hears of clients whose reply did not come."""
HELLO, GLANCE = Patience(quorum=0.0, grace=60.0), Patience(quorum=0.0)
"""For introductions: a node that has just joined may have to load its programs first."""
EXCHANGE = "flower/exchange"
FATES = {
    ErrorCode.NODE_UNAVAILABLE: ("gone", "its node is gone"),
    ErrorCode.CLIENT_APP_CRASHED: ("crashed", "its process ended before it answered"),
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: ("silent", "its answer did not come in time"),
}


def unheard(client: int, kind: str, sentence: str) -> None:
    log.warning("client %d takes no part: %s", client, sentence)


def content_of(message: Message) -> RecordDict:
    """What a node answered, or why it did not."""
    if message.has_error():
        reason = " ".join((message.error.reason or "").split())
        raise Refused(*FATES.get(message.error.code, ("raised", f"it raised an error: {reason[:400]}")))
    return message.content


class FlowerEngine:
    """Clients behind a grid, whatever is behind that: a network, a simulation or this very process.

    A client's number is what its node says it is; nodes come and go, and a client may come back on another one. It
    keeps itself: every order says which exchange of the run it is, and the client goes on from where it was before.
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
        largest: float | None = None,
        on_episode: Callable[[Episode], None] = ignore,
        absent: Absent = unheard,
    ) -> None:
        """`greeting` is what a node has to know, `world` the fingerprint of what it must make of it, and `nodes` which
        client each node is, where their keys say so. With `largest`, the largest number in it, replies are masked."""
        self.grid, self.run, self.greeting, self.world = grid, run, greeting, world
        self.patience, self.nodes, self.on_episode, self.absent = patience, nodes, on_episode, absent
        self.largest = largest
        self.exchange = 0
        self.introductions: dict[int, Introduction] = {}
        """How each client introduced itself when it first came."""
        self.outcomes: dict[int, Mapping[str, Any]] = {}
        """What each client measured of itself in the end."""
        self._mailbox = Mailbox(grid)
        self._node: dict[int, int] = {}
        """Where each client is that is there."""
        self._client: dict[int, int | None] = {}
        """Who is at a node; None: one that is not taken."""
        self._terms: Terms | None = None
        self._cpu = 0.0

    def gather(self, count: int, limit: float = math.inf) -> list[Participant]:
        """What clients 0 to count - 1 say of themselves, when all are there; gives up after `limit` seconds."""
        end, missed = monotonic() + limit, count + 1
        while True:
            self.meet()
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
                    f"of clients={count} these were not there after {limit:g} seconds: "
                    f"{', '.join(map(str, missing))}; start them, or wait longer"
                )
            sleep(max(0.0, min(self.patience.poll, end - monotonic())))

    def meet(self) -> None:
        """Ask nodes that are new which client they are, and forget those that are gone."""
        present = set(self.grid.get_node_ids())
        self._node = {client: node for client, node in self._node.items() if node in present}
        self._client = {node: client for node, client in self._client.items() if node in present}
        self._mailbox.keep(present)
        strange = present - self._client.keys()
        asked = self._mailbox.send(
            Message(self._hello(), node, MessageType.QUERY)
            for node in sorted(strange - set(self._mailbox.open.values()))
        )
        self._mailbox.open |= asked
        # Only those that were asked just now are waited for: whoever has not answered then may take its time.
        hellos = {i: node for i, node in self._mailbox.open.items() if node in strange}
        for node, answer in self._mailbox.wait(hellos, HELLO if asked else GLANCE):
            self._client[node] = None
            try:
                self._welcome(node, read_introduction(content_of(answer)))
            except Exception as why:
                self.refuse(why)

    def _hello(self) -> RecordDict:
        return write_greeting({**self.greeting, "run": self.run, "world": self.world})

    def refuse(self, why: Exception) -> None:
        """A node that is not taken; it may be put right and come again."""
        log.warning("a node is refused: %s", why)

    def _welcome(self, node: int, introduction: Introduction) -> None:
        client = introduction.client
        if self.nodes is not None and self.nodes.get(node) != client:
            raise Refused("key", f"it says that it is client {client}, and has the key of another")
        first = self.introductions.get(client, introduction)
        for what, own, due in (
            ("anchors, scaling or actions", introduction.world, self.world),
            ("encoder than it began with", introduction.member.fingerprint, first.member.fingerprint),
        ):
            if own != due:
                raise Refused("fingerprint", f"client {client} has another {what}: {own}, and {due} is due")
        log.info("client %d is there", client)
        self.introductions[client] = first
        self._node[client], self._client[node] = node, client

    def orders(
        self, kind: str, teacher: Payload | None, episodes: int = 0, clients: Sequence[int] | None = None
    ) -> dict[int, Message]:
        """The next exchange: a message to each of the clients that is there and owes no answer."""
        assert self._terms is not None, "clients are gathered before they are asked for anything"
        content = write_order(Order(self.run, self.exchange, episodes, self._terms, teacher), self.greeting)
        messages = {}
        for client in sorted(self.introductions if clients is None else clients):
            if client not in self._node:
                self.absent(client, "away", "it is not connected")
            elif self._node[client] in self._mailbox.open.values():
                self.absent(client, "busy", "it has yet to answer what it was asked before")
            else:
                messages[client] = Message(content, self._node[client], kind, group_id=str(self.exchange))
        self.exchange += 1
        return messages

    def read(self, client: int, answer: Message) -> Reply | None:
        """The reply of a client; where there is none, `absent` hears why."""
        try:
            reply, cpu = read_reply(content_of(answer))
            if reply.client != client:
                raise Refused("client", f"it says that it is client {reply.client!r:.20}")
        except Refused as why:
            self.absent(client, why.kind, str(why))
        except Exception as error:
            self.absent(client, "unreadable", f"its reply cannot be read ({type(error).__name__}: {error})")
        else:
            self._cpu += cpu
            return reply
        return None

    def _exchange(self, questions: Mapping[int, Message]) -> dict[int, Message]:
        """The answers of the clients, as far as they come in time."""
        who = {question.metadata.dst_node_id: client for client, question in questions.items()}
        answers = {who[node]: answer for node, answer in self._mailbox.ask(questions.values(), self.patience)}
        self._miss(questions.keys() - answers.keys())
        return dict(sorted(answers.items()))

    def _miss(self, silent: Set[int]) -> None:
        for client in sorted(silent):
            self.absent(client, "silent", "it has not answered in time")

    def _read_all(self, answers: Mapping[int, Message]) -> list[Reply]:
        read = [self.read(client, answer) for client, answer in answers.items()]
        return [reply for reply in read if reply is not None]

    def _masked(self, questions: Mapping[int, Message], largest: float) -> list[Reply]:
        """Replies that have the mean of all in place of their own arrays, which leaves the mean what it is."""
        answers, mean = masked.exchange(self._mailbox, self.patience, questions, largest)
        self._miss(questions.keys() - answers.keys())
        replies = self._read_all(answers)
        if mean is None:
            for reply in replies:
                self.absent(reply.client, "masked", "the mean of this round could not be unmasked")
            return []
        return [reply._replace(payload=mean) for reply in replies]

    def round(self, teacher: Payload | None, episodes: int, clients: Sequence[int] | None = None) -> list[Reply]:
        self.meet()
        for node, _ in self._mailbox.late():
            log.info("client %s has answered too late; it is asked again from now on", self._client.get(node))
        self._mailbox.remind(self._hello())
        orders = self.orders(MessageType.TRAIN, teacher, episodes, clients)
        replies = self._read_all(self._exchange(orders)) if self.largest is None else self._masked(orders, self.largest)
        for reply in replies:
            for episode in reply.episodes:
                self.on_episode(episode)
        return replies

    def finish(self, teacher: Payload) -> None:
        self.meet()
        for client, answer in self._exchange(self.orders(MessageType.EVALUATE, teacher)).items():
            try:
                self.outcomes[client] = dict(content_of(answer).metric_records[METRICS])
            except (Refused, KeyError) as why:
                self.absent(client, "unfinished", str(why))

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """Nothing: clients on other machines are out of reach."""
        return []

    def cpu_seconds(self) -> float:
        """Of this process, and what the clients say that they computed."""
        return process_time() + self._cpu

    def state(self) -> Payload:
        """The clients keep themselves."""
        return {EXCHANGE: np.array(self.exchange)}

    def restore(self, arrays: Payload) -> None:
        self.exchange = int(arrays.get(EXCHANGE, 0))

    def close(self) -> None: ...
