"""What a learner says about itself: its name, its settings, how an agent of its kind is built, what that needs."""

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

ACTIONS = (
    "act", "q", "model", "observe", "end_episode", "sync_target", "fit_anchors", "params", "load", "fingerprint",
    "state", "restore",
)  # fmt: skip
"""What an agent can do: the methods of `fedqhd.core.protocols.Agent`."""
NUMBERS = ("epsilon", "updates")


class Learner(Stateful):
    """The base of all agents that can be chosen by name: `--learner NAME`, or `--learner module:Class` for your own.

    A subclass implements `fedqhd.core.protocols.Agent`. By default it is built as
    `cls(n, actions, settings, generator)`; `make` may be overridden.
    """

    name: ClassVar[str] = ""
    Settings: ClassVar[SettingsType] = NoSettings
    Fit: ClassVar[SettingsType] = NoSettings
    """Those of its settings that matter only where it compiles a teacher."""
    encodes: ClassVar[bool] = False
    """Whether it learns a readout of the features of an encoder (`encoder`, `dims`, `sigma`)."""

    def __init__(self, n: int, actions: int, settings: Any, generator: np.random.Generator) -> None:
        raise FedQHDError(f"learner={type(self).__name__} has no __init__(n, actions, settings, generator)")

    @classmethod
    def make(cls, c: Config, client: int, public: Public, pooled: bool = False, **options: Any) -> Agent:
        """The agent of one client.

        Args:
            c: The settings of the run; `c.part(cls.Settings)` are this learner's.
            client: The number of the client.
            public: What all clients share.
            pooled: Whether this is the one agent of an oracle, which learns from the environments of all clients.
            options: What a method adds for its own purposes.
        """
        generator = rng.generator(c.seed, client, "agent")
        return cls(public.n, public.actions, c.part(cls.Settings), generator, **options)  # type: ignore[return-value]

    @classmethod
    def stored_as(cls, c: Config) -> str:
        """How its memory keeps hypervectors: "recompute" where it keeps none."""
        return "recompute"

    @classmethod
    def memory_bytes(cls, c: Config, D: int, actions: int) -> int:
        """What one agent with an encoder of dimension D keeps in memory, beyond its transitions."""
        return 0

    @classmethod
    def needs_matrices(cls, c: Config) -> Mapping[str, str]:
        """Settings and values, among those chosen, for which it keeps D x D matrices whatever D is."""
        return {}

    @classmethod
    def warm_up(cls, c: Config) -> None:
        """Compile the kernels that it uses, before any clock runs."""

    @classmethod
    def other(cls, c: Config) -> dict[str, Any]:
        """Another way to learn, which the tuner tries; where there is none, it tries another learner."""
        return {}

    @classmethod
    def other_step(cls, c: Config) -> dict[str, Any]:
        """A smaller step, or what stands for it, which the tuner tries."""
        return {}


LEARNERS: Registry[Learner] = Registry("learner", "fedqhd.agents.learners", Learner)


def check_agent(agent: Any, name: str) -> None:
    """Refuse, before training, an agent of the user's own that lacks a part of the protocol."""
    for part in (*ACTIONS, *NUMBERS):
        if not hasattr(agent, part) or (part in ACTIONS and not callable(getattr(agent, part))):
            what = f"method {part}()" if part in ACTIONS else f"attribute {part}"
            raise FedQHDError(f"learner={name!r} lacks the {what} of fedqhd.core.protocols.Agent")
