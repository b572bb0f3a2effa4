"""The base class of methods. A method defines its settings, its clients' agents and what these exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedqhd.agents.learner import LEARNERS, Learner, check_actions, check_agent
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
"""The methods that `fedqhd.core.protocols.Federation` requires."""


READOUTS = tuple(kind.name for kind in LEARNERS.all() if kind.encodes)
"""The names of the learners that train a readout on an encoder."""


class Style(NamedTuple):
    """How charts draw a method, and its place among the others."""

    color: str = "#888888"
    dash: tuple[float, ...] = ()
    """Alternating lengths of dashes and gaps; () is a solid line."""
    width: float = 1.5
    rank: int = 100
    """The position in tables; low numbers come first."""


@dataclass(frozen=True)
class LearnerSettings(Settings):
    """How clients learn their readout."""

    title: ClassVar[str] = "run"

    learner: str = setting("replay", "how a client learns, or module:Class", choices=READOUTS, custom=True)


class Method:
    """The base class of all methods.

    To add a method, write a subclass with a `federation` and choose it with `--method module:Class`.
    """

    name: ClassVar[str] = ""
    Settings: ClassVar[SettingsType] = LearnerSettings
    """The settings of the method itself, without those of its learners and encoders."""
    style: ClassVar[Style] = Style()
    pooled: ClassVar[bool] = False
    """Whether a single agent learns from the environments of all clients, as an oracle does."""
    federated: ClassVar[bool] = True
    """Whether clients exchange anything."""
    wrappers: ClassVar[tuple[SettingsType, ...]] = WRAPPERS
    """The settings classes of the wrappers that its federation supports."""
    supported_settings: ClassVar[tuple[str, ...]] = ("homogeneous", "heterogeneous")
    """The values of `setting` that it can run with."""
    seeds: ClassVar[int] = 5
    """The number of seeds that the main table reports."""

    def __init__(self, config: Config) -> None:
        self.config = config

    # Which settings matter to the method.

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        """Return the learner classes of its clients, each once."""
        return [LEARNERS.find(values["learner"])]

    @classmethod
    def uses_anchors(cls, values: Values) -> bool:
        """Tell whether clients exchange values at anchors."""
        return False

    @classmethod
    def parts(cls, values: Values) -> list[SettingsType]:
        """Return the settings classes that matter to a run with these values."""
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
        """Return the settings that matter to a run with these values, by name."""
        fields = fields_of(*cls.parts(values))
        compiling = {name for learner in cls.learners(values) for name in fields_of(learner.Fit)}
        return {name: f for name, f in fields.items() if cls.uses_anchors(values) or name not in compiling}

    @classmethod
    def table_names(cls, values: Values) -> list[str]:
        """Return the names of the tables in a settings file that apply to the method, the most specific last."""
        return [values["setting"], *(learner.name for learner in cls.learners(values)[:1]), cls.name]

    @classmethod
    def source(cls, setting: str) -> tuple[str, str]:
        """Return the (method, setting) whose runs and tuned settings also serve this method in `setting`.

        It is another pair if both would compute the same numbers.
        """
        return cls.name, setting

    # The parts of the method.

    @property
    def clients(self) -> range:
        """The clients that have an agent."""
        return range(1 if self.pooled else self.config.clients)

    def sites(self, client: int) -> Sequence[int]:
        """Return the clients in whose environments this client's agent plays."""
        return range(self.config.clients) if self.pooled else [client]

    def learner(self, client: int) -> tuple[type[Learner], dict[str, Any]]:
        """Return the learner class of a client and the options for its `make`."""
        return self.learners(self.config.values)[0], {}

    @property
    def learner_name(self) -> str:
        """The name of the learner in the summary of a run."""
        return str(self.config.get("learner", self.learners(self.config.values)[0].name))

    def agent(self, client: int, public: Public) -> Agent:
        """Make the agent of a client.

        Raises:
            FedQHDError: If the learner does not suit the environment's actions or lacks a part of the `Agent` protocol.
        """
        kind, options = self.learner(client)
        check_actions(kind, public.bounds, self.config.env)
        agent = kind.make(self.config, client, public, self.pooled, **options)
        check_agent(agent, kind.name or kind.__name__, self.uses_anchors(self.config.values))
        return agent

    @property
    def least_rows(self) -> int:
        """The fewest rows that the W of a client may have. Above 0 if its rows decide what the others exchange."""
        return 0

    @property
    def rule(self) -> Rule:
        """Whose replies count, and how the server combines them. An oracle has nothing to aggregate."""
        return rule_of(self.config.get("aggregate", "mean"))

    def federation(self, terms: Terms, public: Public) -> Federation:
        """Make the federation, which defines what clients and server exchange.

        Args:
            terms: What the server knows of the clients as a group, as far as it decides what they exchange.
            public: What all clients share: the scaler, the anchors and the number of actions.
        """
        raise FedQHDError(f"method={self.config.method!r} has no federation(terms, public): define what is exchanged")

    # What the method cannot be combined with, and what the tuner varies.

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        """Refuse settings that this method cannot be combined with.

        Args:
            c: The settings of the run.
            need: Called as `need(condition, setting, rule)`; raises an error that states the rule if the condition is
                false.
        """
        need(
            c.setting in cls.supported_settings,
            "setting",
            f"method={c.method} runs with {' or '.join(cls.supported_settings)}",
        )
        need(c.get("weights") != "precision", "weights",
             "it needs method=fedqhd and a learner that knows its uncertainty, such as least-squares")  # fmt: skip
        need(c.get("exchange", "model") == "model", "exchange",
             "normal equations need method=fedqhd with learner=least-squares and one encoder")  # fmt: skip

    @classmethod
    def tuning_variant(cls, c: Config) -> dict[str, Any]:
        """Return the settings that the tuner tries as an alternative: here, rounds of 10 episodes, or of 5 instead."""
        return {"round_episodes": 10 if c.round_episodes != 10 else 5}


METHODS: Registry[Method] = Registry("method", "fedqhd.federation.methods", Method)


def method_of(c: Config) -> Method:
    """Return the method that the settings of a run name."""
    return METHODS.find(c.method)(c)


def check_federation(federation: Any, name: str) -> None:
    """Raise FedQHDError if a federation lacks a method of the protocol, so that a run fails before training."""
    for part in PARTS:
        if not callable(getattr(federation, part, None)):
            raise FedQHDError(
                f"method={name!r} makes a {type(federation).__name__} that lacks the method {part}(): a federation "
                f"needs {', '.join(PARTS)}"
            )
