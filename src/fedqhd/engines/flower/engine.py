"""Rounds over a Flower grid: nodes introduce themselves once, then each round sends every client one message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from time import process_time
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedqhd.agents.client import LocalClient, ignore
from fedqhd.core.engine import Trial
from fedqhd.core.protocols import Array, Episode, Payload, Quota, Reply
from fedqhd.engines.flower import masked
from fedqhd.engines.flower.answers import OnAbsent, content_of, log_absence
from fedqhd.engines.flower.grid import Patience
from fedqhd.engines.flower.nodes import Nodes
from fedqhd.engines.flower.records import Order, read_outcome, read_reply, read_trial, write_order
from fedqhd.federation.asked import LONGEST, Asked
from fedqhd.federation.validate import Refused
from fedqhd.federation.wrappers.settings import SECURE_CLIENTS

T = TypeVar("T")
log = logging.getLogger(__name__)

NOTHING = Quota()
EXCHANGE, ASKED = "flower/exchange", "flower/asked"


class FlowerEngine(Nodes):
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
        one_encoder: bool = False,
        least_rows: int = 0,
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
            one_encoder: Whether the method needs the same encoder at all clients.
            least_rows: The fewest rows that the W of a client may have.
            secure_range: The largest absolute value in a reply with secure aggregation; None sends replies unmasked.
            on_episode: Called after each round with every training episode of it.
            on_absent: Called for every client whose reply did not come.
        """
        super().__init__(grid, run, greeting, world, patience, nodes, one_encoder, least_rows)
        self.secure_range, self.on_episode, self.on_absent = secure_range, on_episode, on_absent
        self.sites = 1
        """The number of environments of each client."""
        self.longest = LONGEST
        """The largest number of steps of an episode."""
        self.repeat = 1
        """The steps for which clients repeat each action."""
        self.exchange = 0
        self.asked = 0
        """The largest number of episodes, or of steps, that a client can have played so far."""
        self.outcomes: dict[int, Mapping[str, Any]] = {}
        """The final evaluation of each client, as it reported it."""
        self._quota = Quota()
        """What the last exchange asked for."""
        self._cpu = 0.0

    def orders(
        self, kind: str, teacher: Payload | None, quota: Quota = NOTHING, clients: Sequence[int] | None = None,
        trial: Trial | None = None,
    ) -> dict[int, Message]:  # fmt: skip
        """Write the messages of the next exchange. Clients that are away or still owe an answer are left out.

        A trial leaves the clients as they were, so it is no exchange of its own, and nobody is missed in it.

        Args:
            kind: Flower's message type, TRAIN or EVALUATE.
            teacher: The teacher to install; None in the first round.
            quota: The episodes or steps to train for.
            clients: The clients to ask; None asks all.
            trial: The question to ask instead of training, or None.

        Returns:
            The message to each client, by client number.
        """
        assert self._terms is not None, "clients are gathered before they are asked for anything"
        content = write_order(Order(self.run, self.exchange, quota, self._terms, teacher, trial), self.greeting)
        on_absent = self.on_absent if trial is None else log_absence
        messages = {}
        for client in sorted(self.introductions if clients is None else clients):
            if client not in self._node:
                on_absent(client, "away", "it is not connected")
            elif self._node[client] in self._mailbox.open.values():
                on_absent(client, "busy", "it has not yet answered the previous message")
            else:
                messages[client] = Message(content, self._node[client], kind, group_id=str(self.exchange))
        if trial is None:
            self.exchange += 1
            self._quota = quota
            self.asked += self._asked(0).most
        return messages

    def _asked(self, client: int) -> Asked:
        """Return what the last exchange asked of a client."""
        asked = Asked(client, self._quota, 0, self.sites, self.longest, self.repeat)
        return asked._replace(before=max(self.asked - asked.most, 0))

    def read(self, client: int, answer: Message) -> Reply | None:
        """Read the reply of a client. If there is none, call `on_absent` with the reason and return None."""
        asked = self._asked(client)
        try:
            reply, cpu = read_reply(content_of(answer), asked, masked=self.secure_range is not None)
        except Refused as why:
            self.on_absent(client, why.kind, str(why))
        except Exception as error:
            self.on_absent(client, "unreadable", f"its answer cannot be read ({type(error).__name__}: {error!s:.200})")
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

    def round(self, teacher: Payload | None, quota: Quota, clients: Sequence[int] | None = None) -> list[Reply]:
        self.update_nodes()
        for node, _ in self._mailbox.late():
            log.info("client %s has answered too late; it takes part again from now on", self._client.get(node))
        self._mailbox.remind(self._hello())
        orders = self.orders(MessageType.TRAIN, teacher, quota, clients)
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
                self.outcomes[client] = read_outcome(content_of(answer), self.sites)
            except Refused as why:
                self.on_absent(client, "unfinished", str(why))

    def trial(self, teacher: Payload, trial: Trial) -> dict[int, Array]:
        self.update_nodes()
        returns: dict[int, Array] = {}
        for client, answer in self._ask(self.orders(MessageType.EVALUATE, teacher, trial=trial)).items():
            try:
                returns[client] = read_trial(content_of(answer), trial, self.sites)
            except Refused as why:
                log_absence(client, "trial", str(why))
        return returns

    def each(self, f: Callable[[LocalClient], T]) -> list[T]:
        """Return nothing, because clients on other machines are out of reach."""
        return []

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process plus what the clients reported."""
        return process_time() + self._cpu

    def state(self) -> Payload:
        """Return how many exchanges there were and what they asked for; the clients keep their own state."""
        return {EXCHANGE: np.array(self.exchange), ASKED: np.array(self.asked)}

    def restore(self, arrays: Payload) -> None:
        self.exchange, self.asked = int(arrays.get(EXCHANGE, 0)), int(arrays.get(ASKED, 0))

    def close(self) -> None: ...
