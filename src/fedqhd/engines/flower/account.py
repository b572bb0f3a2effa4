"""The privacy account of a client: what it has answered with differential privacy, and how much it may answer still.

The client keeps the account itself, because a server may ask as often as it likes: with enough answers to one question,
their noise averages out. The same question gets the stored answer again, which reveals nothing new and costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import number_of, read_arrays, write_arrays
from fedqhd.core.protocols import Payload, Reply
from fedqhd.engines.flower.records import Order
from fedqhd.federation.terms import shapes

KEPT_ANSWERS = 3
"""The number of answers that are stored. A server that was killed repeats its last rounds, and no earlier ones."""


def question_of(order: Order) -> str:
    """Return a hash of all that the answer to an order depends on, besides the client itself."""
    teacher: Payload = order.teacher or {}
    about = [order.run, order.exchange, order.quota, order.teacher is None, order.terms.same_encoder, order.trial]
    digest = hashlib.sha256(json.dumps([about, shapes(order.terms.like), shapes(teacher)]).encode())
    for name in sorted(teacher):
        digest.update(teacher[name].tobytes())
    return digest.hexdigest()


class Account(NamedTuple):
    """The privacy account of one client, in a folder that outlives runs."""

    folder: Path
    noise: float
    """The standard deviation of the noise in an answer, in units of the sensitivity."""
    delta: float
    """The delta at which epsilon is computed."""
    budget: float = math.inf
    """The largest epsilon that all answers together may spend."""

    def __str__(self) -> str:
        limit = f" of {self.budget:g}" if math.isfinite(self.budget) else ""
        answers = "1 answer" if self.answers() == 1 else f"{self.answers()} answers"
        return f"epsilon {self.epsilon():.3g}{limit} at delta {self.delta:g} is spent after {answers}"

    def files(self) -> list[Path]:
        """Return the files of the last answers, newest first. Each has the number of its answer in its name."""
        return sorted(self.folder.glob("answer-*.npz"), key=number_of, reverse=True)

    def answers(self) -> int:
        """Return the number of questions that were answered so far."""
        return max(map(number_of, self.files()), default=0)

    def cost(self) -> float:
        """Return the cost of all answers so far, as the accountant counts it.

        Raises:
            DamagedFile: If the newest file cannot be read, since the older ones would count too little.
        """
        newest = self.files()[:1]
        return float(read_arrays(newest[0])[1]["cost"]) if newest else 0.0

    def epsilon(self, more: int = 0) -> float:
        """Return the epsilon that is spent so far, or would be after some more answers."""
        from fedqhd.federation.wrappers.accountant import cost_of, epsilon_at  # it takes a second to import

        return epsilon_at(self.cost() + (more * cost_of(self.noise) if more else 0.0), self.delta)

    def stored(self, question: str) -> Reply | None:
        """Return the stored answer to a question, or None if it is new."""
        for path in self.files():
            arrays, about = read_arrays(path)
            if about["question"] == question:
                return Reply.from_note(about["reply"], arrays)
        return None

    def check(self, order: Order) -> None:
        """Raise FedQHDError if the answer to an order would spend more than the budget."""
        if math.isfinite(self.budget) and self.stored(question_of(order)) is None and self.epsilon(1) > self.budget:
            raise FedQHDError(
                f"epsilon={self.budget:g} allows no further answer: {self}, and another one would make it "
                f"{self.epsilon(1):.3g}; give a larger --epsilon to reveal more"
            )

    def settle(self, order: Order, reply: Reply) -> Reply:
        """Return what to send: the stored answer to an order, or else this reply, which is then on the account.

        The answer and the new cost are in one file before the answer leaves, so that neither a crash nor a full disk
        can make the account too small.
        """
        question = question_of(order)
        before = self.stored(question)
        if before is not None:
            return before
        from fedqhd.federation.wrappers.accountant import cost_of

        about = {"question": question, "cost": self.cost() + cost_of(self.noise), "reply": reply.note()}
        write_arrays(self.folder / f"answer-{self.answers() + 1:06}.npz", reply.payload, about)
        for old in self.files()[KEPT_ANSWERS:]:
            old.unlink()
        return reply
