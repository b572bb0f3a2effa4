"""What a client was asked for in a round, and whether its record of the round fits.

The record is all of a reply but its arrays and its weight. It goes into the files of the run and to callbacks, so it is
checked first, on every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fedqhd.agents.loops import SPLIT
from fedqhd.core.protocols import Episode, Quota, Reply
from fedqhd.core.schema import Field, Real, Whole, fault, shown
from fedqhd.federation.validate import need

LONGEST = 10**7
"""The largest number of steps of an episode whose environment is not known."""
SECONDS: Mapping[str, Field] = {f"seconds/{name}": Real(0.0, 1e8) for name in SPLIT}
"""The times in a reply, by activity. No round takes three years."""


class Asked(NamedTuple):
    """What a client was asked for in a round, which limits what its reply can say."""

    client: int
    quota: Quota
    before: int
    """The largest number of episodes, or of steps, that it can have played before."""
    sites: int = 1
    """The number of its environments; only a pooled oracle has more than one."""
    longest: int = LONGEST
    """The largest number of steps of an episode."""
    repeat: int = 1
    """The steps for which it repeats each action. A round of steps ends with an action, so it may take up to `repeat`
    - 1 steps more."""

    @property
    def least(self) -> int:
        """The smallest number of steps in the reply to a round of steps."""
        return self.quota.steps * self.sites

    @property
    def most(self) -> int:
        """The largest number of episodes, or of steps, that the client plays in this round."""
        return self.least + self.repeat - 1 if self.quota.steps else self.quota.episodes

    @property
    def records(self) -> tuple[int, int]:
        """The smallest and the largest number of records of episodes in the reply."""
        due = self.quota.episodes * self.sites
        return (0, self.most) if self.quota.steps else (due, due)

    def columns(self) -> dict[str, Field]:
        """Return what the fields of each `Episode` may be."""
        return {
            "client": Whole(self.client, self.client + self.sites - 1),
            "episode": Whole(0, self.before + self.most - 1),
            "ret": Real(),
            "length": Whole(1 if self.quota.steps else 0, self.longest),
            "epsilon": Real(),
        }


def check_record(reply: Reply, asked: Asked) -> None:
    """Raise `Refused` unless a reply, whose fields may hold anything, records what its client was asked for."""
    need(
        type(reply.client) is int and reply.client == asked.client,
        "client", f"it says that it is client {shown(reply.client)}",
    )  # fmt: skip
    played, columns, (fewest, most) = reply.episodes, asked.columns(), asked.records
    need(isinstance(played, tuple), "episodes", f"its episodes are {shown(played)}, not a tuple")
    need(
        fewest <= len(played) <= most, "episodes",
        f"it has records of {len(played)} episodes, but was asked for {most}" if fewest == most
        else f"it has records of {len(played)} episodes, but at most {most} end in {most} steps",
    )  # fmt: skip
    for episode in played:
        need(isinstance(episode, Episode), "episodes", f"it has {shown(episode)} for the record of an episode")
        wrong = fault(episode._asdict(), columns)
        need(not wrong, "episodes", f"in the record of an episode, {wrong}")
    need(
        [(e.client, e.episode) for e in played] == due(asked, played)
        and all(e.episode <= asked.before for e in played[:1]),
        "episodes", f"its episodes are not {len(played)} in a row, of which the first is at most {asked.before}",
    )  # fmt: skip
    check_steps(reply, asked)
    need(isinstance(reply.seconds, Mapping), "seconds", f"its times are {shown(reply.seconds)}")
    wrong = fault({f"seconds/{name}": value for name, value in reply.seconds.items()}, SECONDS)
    need(not wrong, "seconds", wrong)


def due(asked: Asked, played: tuple[Episode, ...]) -> list[tuple[int, int]]:
    """Return the (client, episode) of each record, given the first one. Environments take turns in every episode.

    A round of steps may begin with any environment of a pooled oracle, a round of episodes with the first.
    """
    if not played:
        return []
    site = played[0].client - asked.client if asked.quota.steps else 0
    first = played[0].episode * asked.sites + site
    return [(asked.client + k % asked.sites, k // asked.sites) for k in range(first, first + len(played))]


def check_steps(reply: Reply, asked: Asked) -> None:
    """Raise `Refused` unless the steps of a reply are those of its episodes or, if asked for steps, as many as asked.

    In a round of steps, the first episode may have begun before the round, and another one may be open at its end.
    """
    steps, total = reply.steps, sum(e.length for e in reply.episodes)
    if not asked.quota.steps:
        need(
            type(steps) is int and steps == total,
            "steps", f"it counts {shown(steps)} steps, but its episodes have {total}",
        )  # fmt: skip
        return
    need(
        type(steps) is int and asked.least <= steps <= asked.most,
        "steps", f"it counts {shown(steps)} steps, but was asked for {asked.least}",
    )  # fmt: skip
    first = reply.episodes[0].length if reply.episodes else 0
    within = total - first  # the steps of the episodes that both began and ended in this round
    begun = not reply.episodes or (within < steps and first <= asked.before + steps - within)
    need(
        begun and steps - total < asked.longest,
        "steps", f"its {len(reply.episodes)} episodes of {total} steps in all do not fit into a round of {steps} steps",
    )  # fmt: skip
