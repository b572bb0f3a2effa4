"""Messages to nodes and their answers: how long the server waits, and a grid without a network."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from time import monotonic, sleep
from typing import NamedTuple, cast

import httpx
from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

log = logging.getLogger(__name__)


class Patience(NamedTuple):
    """How long a round waits for replies; times are in seconds."""

    quorum: float = 1.0
    """The share of the asked clients whose replies are enough to end the wait after `grace`."""
    grace: float = 0.0
    """How much longer to wait for the others once the quorum is reached."""
    limit: float = math.inf
    """The longest wait, whether or not the quorum is reached."""
    poll: float = 0.1
    """The time between two looks for new replies."""


class Mailbox:
    """Sends messages to nodes and collects their answers."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.open: dict[str, int] = {}
        """The node of each unanswered message, by message id."""
        self._reminders: dict[str, int] = {}

    def send(self, questions: Iterable[Message]) -> dict[str, int]:
        """Send messages and return the node of each message that was accepted, by message id.

        The id is the key because Flower's own answers, such as that a node is gone, do not name the node.
        """
        questions = list(questions)
        sent = set(self.grid.push_messages(questions)) if questions else set()
        return {q.metadata.message_id: q.metadata.dst_node_id for q in questions if q.metadata.message_id in sent}

    def ask(self, questions: Iterable[Message], patience: Patience) -> Iterator[tuple[int, Message]]:
        """Send messages and yield (node, answer) as answers arrive; see `wait`."""
        asked = self.send(questions)
        self.open |= asked
        yield from self.wait(asked, patience)

    def wait(self, asked: Mapping[str, int], patience: Patience) -> Iterator[tuple[int, Message]]:
        """Yield (node, answer) as answers arrive, until all have arrived or patience runs out.

        Messages without an answer stay in `open`.
        """
        end = monotonic() + patience.limit
        enough = math.ceil(patience.quorum * len(asked))
        while waiting := asked.keys() & self.open.keys():
            yield from self._pull(waiting)
            left = len(asked.keys() & self.open.keys())
            if len(asked) - left >= enough:
                end = min(end, monotonic() + patience.grace)
                enough = len(asked) + 1  # the grace period starts only once
            if left and monotonic() >= end:
                return
            if left:
                sleep(patience.poll)

    def late(self) -> list[tuple[int, Message]]:
        """Return (node, answer) for answers that came after the wait for them had ended.

        Also forget what can no longer be answered: messages to nodes that are gone, and to nodes that died and returned
        under their old id. A node answers messages in order, so one that answers a reminder has lost earlier messages.
        """
        answers = list(self._pull(self.open.keys()))
        alive = {self._reminders.pop(i) for i, _ in self._answers(self._reminders)}
        self.keep(set(self.grid.get_node_ids()) - alive)
        return answers

    def keep(self, nodes: Set[int]) -> None:
        """Keep only the open messages to these nodes, and forget all others."""
        self.open = {i: node for i, node in self.open.items() if node in nodes}
        self._reminders = {i: node for i, node in self._reminders.items() if node in self.open.values()}

    def remind(self, content: RecordDict) -> None:
        """Send a query to every node that owes an answer, to find out whether it is alive."""
        owing = sorted(set(self.open.values()) - set(self._reminders.values()))
        self._reminders |= self.send(Message(content, node, MessageType.QUERY) for node in owing)

    def _pull(self, ids: Iterable[str]) -> Iterator[tuple[int, Message]]:
        for i, answer in self._answers(ids):
            node = self.open.pop(i)
            if answer is not None:
                yield node, answer

    def _answers(self, ids: Iterable[str]) -> Iterator[tuple[str, Message | None]]:
        """Yield the id of each message that was answered, and its answer; None if the bytes of it are no message.

        They are pulled one by one. Flower loses all that it pulls at once if it cannot read one of them, and which
        message an answer is to is only known for sure from the question, since the answer is in the hands of its node.
        """
        for i in sorted(ids):
            try:
                answers = list(self.grid.pull_messages([i]))[:1]
            except httpx.HTTPError:  # the SuperLink cannot be reached
                raise
            except Exception as error:
                log.warning("an answer cannot be read (%s: %.200s)", type(error).__name__, error)
                yield i, None
            else:
                yield from ((i, answer) for answer in answers)


class InProcessGrid(Grid):
    """A grid whose nodes run a ClientApp in this process, one after the other.

    Messages are serialised as on a network. It serves tests and debugging.
    """

    def __init__(self, app: ClientApp, configs: Sequence[Mapping[str, str | int | float | bool]]) -> None:
        """Make one node per entry of `configs`, which is its node-config."""
        self.app = app
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.contexts = {
            1000 + i: Context(1, 1000 + i, dict(config), RecordDict(), {}) for i, config in enumerate(configs)
        }
        self.sent = 0
        self.bytes = {"up": 0, "down": 0}
        """The size of all messages so far as they would travel on a network, without headers."""
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        return Run.create_empty(1)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.sent += 1
            ids.append(str(self.sent))
            message.metadata.__dict__["_message_id"] = ids[-1]
            try:
                reply = self.app(self._sent(message, "down"), self.contexts[message.metadata.dst_node_id])
            except Exception as error:
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error)), reply_to=message)
            self._replies[ids[-1]] = self._sent(reply, "up")
        return ids

    def _sent(self, message: Message, way: str) -> Message:
        """Serialise and deserialise a message, and count its bytes; `way` is "up" or "down"."""
        contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.bytes[way] += sum(map(len, contents.values()))
        arrived = cast(Message, inflate_object_from_contents(message.object_id, contents))
        arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
        return arrived

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
