"""How long the server waits for whom; and a grid without a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from time import monotonic, sleep
from typing import NamedTuple, cast

from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class Patience(NamedTuple):
    """How long a round waits for replies, in seconds."""

    quorum: float = 1.0
    """The share of those asked whose replies are enough ..."""
    grace: float = 0.0
    """... after so many more seconds."""
    limit: float = math.inf
    """Nobody is waited for any longer than this."""
    poll: float = 0.1
    """Between two looks."""


class Mailbox:
    """Questions to nodes, and their answers."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.open: dict[str, int] = {}
        """Questions without an answer as yet, and the nodes that owe it."""
        self._reminders: dict[str, int] = {}

    def send(self, questions: Iterable[Message]) -> dict[str, int]:
        """By message, since Flower's own answers, as for a node that is gone, do not say whom they concern."""
        questions = list(questions)
        sent = set(self.grid.push_messages(questions)) if questions else set()
        return {q.metadata.message_id: q.metadata.dst_node_id for q in questions if q.metadata.message_id in sent}

    def ask(self, questions: Iterable[Message], patience: Patience) -> Iterator[tuple[int, Message]]:
        asked = self.send(questions)
        self.open |= asked
        yield from self.wait(asked, patience)

    def wait(self, asked: Mapping[str, int], patience: Patience) -> Iterator[tuple[int, Message]]:
        """(node, its answer), as they come, until all have come or patience is at its end; then the rest stay open."""
        end = monotonic() + patience.limit
        enough = math.ceil(patience.quorum * len(asked))
        while waiting := asked.keys() & self.open.keys():
            yield from self._pull(waiting)
            left = len(asked.keys() & self.open.keys())
            if len(asked) - left >= enough:
                end = min(end, monotonic() + patience.grace)
                enough = len(asked) + 1  # the grace runs once
            if left and monotonic() >= end:
                return
            if left:
                sleep(patience.poll)

    def late(self) -> list[tuple[int, Message]]:
        """Answers that nobody waits for any more. Nodes that are gone owe none, nor do those that died and came back
        under their old name: a node answers in turn, so one that answers a reminder has lost what came before it."""
        answers = list(self._pull(self.open.keys()))
        alive = set()
        for answer in self.grid.pull_messages(sorted(self._reminders)):
            alive.add(self._reminders.pop(answer.metadata.reply_to_message_id, None))
        self.keep(set(self.grid.get_node_ids()) - alive)
        return answers

    def keep(self, nodes: Set[int]) -> None:
        """Forget what all others owe."""
        self.open = {i: node for i, node in self.open.items() if node in nodes}
        self._reminders = {i: node for i, node in self._reminders.items() if node in self.open.values()}

    def remind(self, content: RecordDict) -> None:
        """Ask whoever owes an answer for a sign of life."""
        owing = sorted(set(self.open.values()) - set(self._reminders.values()))
        self._reminders |= self.send(Message(content, node, MessageType.QUERY) for node in owing)

    def _pull(self, ids: Iterable[str]) -> Iterator[tuple[int, Message]]:
        for answer in self.grid.pull_messages(sorted(ids)):
            node = self.open.pop(answer.metadata.reply_to_message_id, None)
            if node is not None:
                yield node, answer


class InProcessGrid(Grid):
    """The nodes of a ClientApp in this process, one after the other: what is sent takes the form that it has on a
    network, and nothing else does. For tests, and to follow a message with a debugger."""

    def __init__(self, app: ClientApp, configs: Sequence[Mapping[str, str | int | float | bool]]) -> None:
        """A node for each of `configs`, with that as its node-config."""
        self.app = app
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.contexts = {
            1000 + i: Context(1, 1000 + i, dict(config), RecordDict(), {}) for i, config in enumerate(configs)
        }
        self.sent = 0
        self.bytes = {"up": 0, "down": 0}
        """What the messages so far would have been on a network, without its headers."""
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
        """The message as it comes out at the other end."""
        contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        self.bytes[way] += sum(map(len, contents.values()))
        arrived = cast(Message, inflate_object_from_contents(message.object_id, contents))
        arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
        return arrived

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
