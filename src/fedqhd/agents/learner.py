"""The base class of learners, which declares the name and the settings of a learner and makes its agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedqhd.agents.settings import Memory, state_bytes
from fedqhd.core import rng
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Agent, Array
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
ANCHOR_METHODS = ("q", "fit_anchors")
"""The methods that are used only if values at anchors are exchanged."""


class Learner(Stateful):
    """The base class of learners: agents that users choose by `--learner NAME` or `--learner module:Class`.

    A subclass implements `fedqhd.core.protocols.Agent`; `q` and `fit_anchors` are needed only if values at anchors are
    exchanged. By default it is constructed as `cls(n, actions, settings, generator)`; override `make` to change that.
    """

    name: ClassVar[str] = ""
    """The name by which users choose it."""
    Settings: ClassVar[SettingsType] = NoSettings
    """The class of its settings."""
    Fit: ClassVar[SettingsType] = NoSettings
    """The base class of `Settings` with those settings that are used only to compile a teacher."""
    encodes: ClassVar[bool] = False
    """Whether it learns a readout of the features of an encoder and so uses `encoder`, `dims` and `sigma`."""
    states_stored: ClassVar[int] = 2
    """How many states its memory stores for each transition: the state and the next one, unless it can do with one."""
    continuous: ClassVar[bool] = False
    """Whether its actions are vectors; `actions` is then the array (2, k) of their bounds instead of their number."""
    epsilon: float = 0.0
    updates: int = 0

    def __init__(self, n: int, actions: Any, settings: Any, generator: np.random.Generator) -> None:
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
        actions = public.bounds if cls.continuous else public.actions
        return cls(public.n, actions, c.part(cls.Settings), generator, **options)  # type: ignore[return-value]

    @classmethod
    def stored_as(cls, c: Config) -> str:
        """Return the type in which its memory stores hypervectors, or "recompute" if it stores none."""
        return "recompute"

    @classmethod
    def memory_bytes(cls, c: Config, n: int, D: int, actions: int) -> int:
        """Return the bytes that one agent needs.

        Args:
            c: The settings of the run.
            n: Number of state variables.
            D: Dimension of its encoder, or 0 if it has none.
            actions: Number of actions.
        """
        return cls.states_stored * state_bytes(c, n) if issubclass(cls.Settings, Memory) else 0

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

    def in_kernel(self) -> Any:
        """Return this agent as a record of `fedqhd.kernels.records`, with which a kernel plays episodes in its place.

        The record shares the agent's arrays. By default there is none, and episodes are played in Python.
        """
        return None

    def goes_on(self, z: Array) -> None:
        """Prepare for steps in a kernel from the scaled state z, with which another episode may begin."""

    def played(self, record: Any, actions: int, z: Array) -> None:
        """Take over what a kernel has counted in a record of `in_kernel`.

        Args:
            record: The record.
            actions: How many actions the kernel has played with it.
            z: The scaled state after them.
        """

    def failed(self, acting: bool, z: Array, a: int, r: float, delta: float) -> None:
        """Raise FedQHDError because a kernel found a number that is not finite.

        Args:
            acting: Whether it was among the values of actions, not the error of a step of learning.
            z: The scaled state.
            a: The action.
            r: The reward.
            delta: The error.
        """

    def end_episode(self) -> None:
        """Prepare for the next episode. By default, nothing changes between episodes."""

    def sync_target(self) -> None:
        """Copy the weights to the target weights. By default, there are none."""

    def q(self, s: Array) -> Array:
        """Return the Q-values (B, A) of scaled states s (B, n). By default, there are none."""
        raise FedQHDError(f"learner={type(self).__name__} has no Q-values")

    def fit_anchors(self, anchors: Array, Q: Array) -> None:
        """Compile a teacher. By default, that is not possible."""
        raise FedQHDError(f"learner={type(self).__name__} cannot compile a teacher")


LEARNERS: Registry[Learner] = Registry("learner", "fedqhd.agents.learners", Learner)


def check_agent(agent: Any, name: str, anchors: bool) -> None:
    """Raise FedQHDError if a custom agent lacks a part of the protocol.

    Args:
        agent: The agent.
        name: The name of its learner, for error messages.
        anchors: Whether values at anchors are exchanged.
    """
    for part in AGENT_METHODS:
        method = getattr(agent, part, None)
        inherited = part in ANCHOR_METHODS and getattr(method, "__func__", None) is getattr(Learner, part)
        if not callable(method) or (anchors and inherited):
            raise FedQHDError(f"learner={name!r} lacks the method {part}() of fedqhd.core.protocols.Agent")
    for part in AGENT_ATTRIBUTES:
        if not hasattr(agent, part):
            raise FedQHDError(f"learner={name!r} lacks the attribute {part} of fedqhd.core.protocols.Agent")


def check_actions(learner: type[Learner], bounds: Array | None, env: str) -> None:
    """Raise FedQHDError if a learner does not suit the actions of an environment.

    Args:
        learner: The learner.
        bounds: The bounds of continuous actions, or None for discrete ones.
        env: The name of the environment, for error messages.
    """
    words = {False: "discrete", True: "continuous"}
    continuous = bounds is not None
    if learner.continuous != continuous:
        raise FedQHDError(
            f"env={env!r} has {words[continuous]} actions, but learner={learner.name or learner.__name__} learns "
            f"{words[learner.continuous]} ones: choose another environment or learner"
        )
