"""What a method says about itself: its name, its settings, its agents, what they exchange, and what it cannot do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedqhd.agents.learner import LEARNERS, Learner, check_agent
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Federation
from fedqhd.core.registry import Registry
from fedqhd.core.settings import Need, Settings, SettingsType, fields_of, setting
from fedqhd.encoders.settings import EncoderSettings
from fedqhd.envs.anchors import AnchorSettings
from fedqhd.envs.public import Public
from fedqhd.federation.aggregate import Rule, rule_of
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings
from fedqhd.federation.terms import Terms
from fedqhd.federation.wrappers.settings import WRAPPERS

Values = Mapping[str, Any]
"""Settings by name, before it is known which of them matter."""
PARTS = ("start", "report", "expects", "aggregate", "install")
"""What a federation can do: the methods of `fedqhd.core.protocols.Federation`."""


READOUTS = tuple(kind.name for kind in LEARNERS.all() if kind.encodes)
"""The learners of a readout, which methods named for them may have."""


class Style(NamedTuple):
    """How a method is drawn in charts, and where it stands among the others."""

    color: str = "#888888"
    dash: tuple[float, ...] = ()
    """Lengths of lines and gaps; () is a solid line."""
    width: float = 1.5
    rank: int = 100
    """Its place in tables: low numbers come first."""


@dataclass(frozen=True)
class LearnerSettings(Settings):
    """How clients with a readout learn."""

    title: ClassVar[str] = "run"

    learner: str = setting("replay", "how a client learns, or module:Class", choices=READOUTS, custom=True)


class Method:
    """The base of all methods. Yours is a subclass with a `federation`, chosen by `--method module:Class`."""

    name: ClassVar[str] = ""
    Settings: ClassVar[SettingsType] = LearnerSettings
    """The settings of this method itself; those of its learners and encoders are theirs."""
    style: ClassVar[Style] = Style()
    pooled: ClassVar[bool] = False
    """Whether it is one agent that learns from the environments of all clients: an oracle."""
    federated: ClassVar[bool] = True
    """Whether clients exchange anything."""
    wrappers: ClassVar[tuple[SettingsType, ...]] = WRAPPERS
    """What can be wrapped around its federation."""
    possible: ClassVar[tuple[str, ...]] = ("homogeneous", "heterogeneous")
    """The settings that it can run in."""
    seeds: ClassVar[int] = 5
    """Seeds that the main table reports."""

    def __init__(self, config: Config) -> None:
        self.config = config

    # What matters to it.

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        """The kinds of agents that its clients have, each once."""
        return [LEARNERS.find(values["learner"])]

    @classmethod
    def uses_anchors(cls, values: Values) -> bool:
        """Whether values at anchors are exchanged."""
        return False

    @classmethod
    def parts(cls, values: Values) -> list[SettingsType]:
        """The classes whose settings matter to a run with these values."""
        found: list[SettingsType] = [cls.Settings]
        if not cls.pooled:
            found.append(ParticipationSettings)
        if cls.federated:
            found += [AggregationSettings, *cls.wrappers]
        if cls.uses_anchors(values):
            found.append(AnchorSettings)
        learners = cls.learners(values)
        if any(learner.encodes for learner in learners):
            found.append(EncoderSettings)
        return [*found, *(learner.Settings for learner in learners)]

    @classmethod
    def fields(cls, values: Values) -> dict[str, dataclasses.Field[Any]]:
        """The settings that matter to a run with these values, by name."""
        fields = fields_of(*cls.parts(values))
        compiling = {name for learner in cls.learners(values) for name in fields_of(learner.Fit)}
        return {name: f for name, f in fields.items() if cls.uses_anchors(values) or name not in compiling}

    @classmethod
    def table_names(cls, values: Values) -> list[str]:
        """Tables of a settings file that concern it, the most particular last."""
        return [values["setting"], *(learner.name for learner in cls.learners(values)[:1]), cls.name]

    @classmethod
    def source(cls, setting: str) -> tuple[str, str]:
        """(method, setting) whose runs and tuned settings are those of this one."""
        return cls.name, setting

    # What it is made of.

    @property
    def clients(self) -> range:
        """The clients that have an agent."""
        return range(1 if self.pooled else self.config.clients)

    def sites(self, client: int) -> Sequence[int]:
        """The clients whose environments an agent plays in."""
        return range(self.config.clients) if self.pooled else [client]

    def learner(self, client: int) -> tuple[type[Learner], dict[str, Any]]:
        """The kind of a client's agent, and options for making it."""
        return self.learners(self.config.values)[0], {}

    @property
    def learner_name(self) -> str:
        """For the record of a run."""
        return str(self.config.get("learner", self.learners(self.config.values)[0].name))

    def agent(self, client: int, public: Public) -> Agent:
        """The agent of a client."""
        kind, options = self.learner(client)
        agent = kind.make(self.config, client, public, self.pooled, **options)
        check_agent(agent, kind.name or kind.__name__)
        return agent

    @property
    def rule(self) -> Rule:
        """Whose replies count, and how the server combines them. An oracle has nothing to aggregate."""
        return rule_of(self.config.get("aggregate", "mean"))

    def federation(self, terms: Terms, public: Public) -> Federation:
        """What the clients exchange.

        Args:
            terms: What all clients are together, as far as it decides what they exchange.
            public: What all clients share.
        """
        raise FedQHDError(f"method={self.config.method!r} has no federation(terms, public): say what is exchanged")

    # What it cannot do, and what a tuner may vary.

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        """Refuse what this method cannot be combined with."""
        need(c.setting in cls.possible, "setting", f"method={c.method} runs with {' or '.join(cls.possible)}")
        need(c.get("weights") != "precision", "weights",
             "only method=fedqhd with a learner such as least-squares knows how certain it is")  # fmt: skip
        need(c.get("exchange", "model") == "model", "exchange",
             "normal equations add up for method=fedqhd with learner=least-squares and one encoder")  # fmt: skip

    @classmethod
    def other_exchange(cls, c: Config) -> dict[str, Any]:
        """Another way to exchange, which the tuner tries: more often, or less often where that is often already."""
        return {"round_episodes": 10 if c.round_episodes != 10 else 5}


METHODS: Registry[Method] = Registry("method", "fedqhd.federation.methods", Method)


def method_of(c: Config) -> Method:
    """The method of a run."""
    return METHODS.find(c.method)(c)


def check_federation(federation: Any, name: str) -> None:
    """Refuse, before training, a federation of the user's own that lacks a part of the protocol."""
    for part in PARTS:
        if not callable(getattr(federation, part, None)):
            raise FedQHDError(
                f"method={name!r} makes a {type(federation).__name__} that lacks the method {part}() of "
                "fedqhd.core.protocols.Federation"
            )
