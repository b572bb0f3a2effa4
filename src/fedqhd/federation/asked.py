"""What a client was asked for in a round, and whether its record of the round fits.

The record is all of a reply but its arrays and its weight. It goes into the files of the run and to callbacks, so it is
checked first, on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedqhd.agents.loops import SPLIT
from fedqhd.core.protocols import Episode, Reply
from fedqhd.core.schema import Field, Real, Whole, fault, shown
from fedqhd.federation.validate import need

LONGEST = 10**7
"""The largest number of steps of an episode whose environment is not known."""
SECONDS: Mapping[str, Field] = {f"seconds/{name}": Real(0.0, 1e8) for name in SPLIT}
"""The times in a reply, by activity. No round takes three years."""


class Asked(NamedTuple):
    """What a client was asked for in a round, which limits what its reply can say."""

    client: int
    episodes: int
    before: int
    """The largest number of episodes that it can have played before."""
    sites: int = 1
    """The number of its environments; only a pooled oracle has more than one."""
    longest: int = LONGEST
    """The largest number of steps of an episode."""

    @property
    def records(self) -> int:
        """The number of records of episodes in the reply."""
        return self.episodes * self.sites

    def columns(self) -> dict[str, Field]:
        """Return what the fields of each `Episode` may be."""
        return {
            "client": Whole(self.client, self.client + self.sites - 1),
            "episode": Whole(0, self.before + self.episodes - 1),
            "ret": Real(),
            "length": Whole(0, self.longest),
            "epsilon": Real(),
        }


def check_record(reply: Reply, asked: Asked) -> None:
    """Raise `Refused` unless a reply, whose fields may hold anything, records what its client was asked for."""
    need(
        type(reply.client) is int and reply.client == asked.client,
        "client", f"it says that it is client {shown(reply.client)}",
    )  # fmt: skip
    played, columns = reply.episodes, asked.columns()
    need(isinstance(played, tuple), "episodes", f"its episodes are {shown(played)}, not a tuple")
    need(
        len(played) == asked.records,
        "episodes", f"it has records of {len(played)} episodes, but was asked for {asked.records}",
    )  # fmt: skip
    for episode in played:
        need(isinstance(episode, Episode), "episodes", f"it has {shown(episode)} for the record of an episode")
        wrong = fault(episode._asdict(), columns)
        need(not wrong, "episodes", f"in the record of an episode, {wrong}")
    first = played[0].episode if played else 0
    due = [(asked.client + site, first + k) for k in range(asked.episodes) for site in range(asked.sites)]
    need(
        [(e.client, e.episode) for e in played] == due and first <= asked.before,
        "episodes", f"its episodes are not {asked.episodes} in a row, of which the first is at most {asked.before}",
    )  # fmt: skip
    total = sum(e.length for e in played)
    need(
        type(reply.steps) is int and reply.steps == total,
        "steps", f"it counts {shown(reply.steps)} steps, but its episodes have {total}",
    )  # fmt: skip
    need(isinstance(reply.seconds, Mapping), "seconds", f"its times are {shown(reply.seconds)}")
    wrong = fault({f"seconds/{name}": value for name, value in reply.seconds.items()}, SECONDS)
    need(not wrong, "seconds", wrong)
