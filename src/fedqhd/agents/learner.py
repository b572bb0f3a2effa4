"""The base class of learners, which declares the name and the settings of a learner and makes its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent
from fedqhd.core.registry import Registry
from fedqhd.core.settings import Settings as NoSettings
from fedqhd.core.settings import SettingsType
from fedqhd.core.snapshot import Stateful
from fedqhd.envs.public import Public

AGENT_METHODS = (
    "act", "q", "model", "observe", "end_episode", "sync_target", "fit_anchors", "params", "load", "fingerprint",
    "state", "restore",
)  # fmt: skip
"""The methods of `fedqhd.core.protocols.Agent`."""
AGENT_ATTRIBUTES = ("epsilon", "updates")


class Learner(Stateful):
    """The base class of learners: agents that users choose by `--learner NAME` or `--learner module:Class`.

    A subclass implements `fedqhd.core.protocols.Agent`. By default it is constructed as
    `cls(n, actions, settings, generator)`; override `make` to change that.
    """

    name: ClassVar[str] = ""
    """The name by which users choose it."""
    Settings: ClassVar[SettingsType] = NoSettings
    """The class of its settings."""
    Fit: ClassVar[SettingsType] = NoSettings
    """The base class of `Settings` with those settings that are used only to compile a teacher."""
    encodes: ClassVar[bool] = False
    """Whether it learns a readout of the features of an encoder and so uses `encoder`, `dims` and `sigma`."""

    def __init__(self, n: int, actions: int, settings: Any, generator: np.random.Generator) -> None:
        raise FedQHDError(f"learner={type(self).__name__} has no __init__(n, actions, settings, generator)")

    @classmethod
    def make(cls, c: Config, client: int, public: Public, pooled: bool = False, **options: Any) -> Agent:
        """Make the agent of one client.

        Args:
            c: The settings of the run; `c.part(cls.Settings)` returns those of this learner.
            client: The number of the client.
            public: What all clients share.
            pooled: Whether this is the single agent of an oracle, which learns from the environments of all clients.
            options: Further arguments that a method passes to the constructor.
        """
        generator = rng.generator(c.seed, client, "agent")
        return cls(public.n, public.actions, c.part(cls.Settings), generator, **options)  # type: ignore[return-value]

    @classmethod
    def stored_as(cls, c: Config) -> str:
        """Return the type in which its memory stores hypervectors, or "recompute" if it stores none."""
        return "recompute"

    @classmethod
    def memory_bytes(cls, c: Config, D: int, actions: int) -> int:
        """Return the bytes that one agent with an encoder of dimension D needs beyond those of its transitions."""
        return 0

    @classmethod
    def needs_matrices(cls, c: Config) -> Mapping[str, str]:
        """Return the chosen settings, with their values, that require D x D matrices for any D."""
        return {}

    @classmethod
    def warm_up(cls, c: Config) -> None:
        """Compile the kernels that it uses, so that compilation is not part of measured times."""

    @classmethod
    def other_learning(cls, c: Config) -> dict[str, Any]:
        """Return settings of another way to learn for the tuner to try; if empty, it tries another learner."""
        return {}

    @classmethod
    def other_step(cls, c: Config) -> dict[str, Any]:
        """Return settings of a smaller step, or of its equivalent, for the tuner to try."""
        return {}


LEARNERS: Registry[Learner] = Registry("learner", "fedqhd.agents.learners", Learner)


def check_agent(agent: Any, name: str) -> None:
    """Raise FedQHDError if a custom agent lacks a part of the protocol."""
    for part in (*AGENT_METHODS, *AGENT_ATTRIBUTES):
        if not hasattr(agent, part) or (part in AGENT_METHODS and not callable(getattr(agent, part))):
            what = f"method {part}()" if part in AGENT_METHODS else f"attribute {part}"
            raise FedQHDError(f"learner={name!r} lacks the {what} of fedqhd.core.protocols.Agent")
