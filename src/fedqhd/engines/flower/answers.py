"""The answers of nodes, and why one may be missing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode

from fedqhd.federation.validate import Refused

log = logging.getLogger(__name__)

OnAbsent = Callable[[int, str, str], None]
"""(client, reason in one word, reason in one sentence): called for a client whose reply did not come."""
FATES = {
    ErrorCode.NODE_UNAVAILABLE: ("gone", "its node is gone"),
    ErrorCode.CLIENT_APP_CRASHED: ("crashed", "its process ended before it answered"),
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: ("silent", "its answer did not come in time"),
}
"""The reason, as `OnAbsent` takes it, for each of Flower's errors."""


def log_absence(client: int, kind: str, sentence: str) -> None:
    """Log that a client does not take part, and why; the default of `on_absent`."""
    log.warning("client %d does not take part: %s", client, sentence)


def content_of(message: Message) -> RecordDict:
    """Return the content of an answer, or raise `Refused` if it carries an error."""
    if message.has_error():
        # The text comes from the client and goes to the log, so it must not control a terminal.
        reason = "".join(c for c in " ".join((message.error.reason or "").split()) if c.isprintable())
        raise Refused(*FATES.get(message.error.code, ("raised", f"it raised an error: {reason[:400]}")))
    if not message.has_content():
        raise Refused("unreadable", "its answer has no content")
    return message.content
