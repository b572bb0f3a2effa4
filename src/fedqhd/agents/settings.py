"""Settings that several learners share. The settings of one learner are in its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.encoders import BaseEncoder
from fedqhd.encoders.settings import real_features


@dataclass(frozen=True)
class Exploration(Settings):
    """Epsilon decays geometrically with each episode, down to a minimum."""

    title: ClassVar[str] = "exploration"

    epsilon_start: float = setting(1.0, "epsilon in the first episode", at_least=0, at_most=1)
    epsilon_end: float = setting(0.001, "smallest epsilon", at_least=0, at_most=1)
    epsilon_decay: float = setting(0.985, "factor on epsilon after each episode", above=0, at_most=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        super().check(c, need)
        need(c.epsilon_end <= c.epsilon_start, "epsilon_start", f"it must be at least epsilon_end={c.epsilon_end}")

    def decayed(self, epsilon: float) -> float:
        """Return epsilon after one more episode."""
        return max(self.epsilon_end, epsilon * self.epsilon_decay)


@dataclass(frozen=True)
class Compilation(Settings):
    """How a teacher is compiled into a readout."""

    title: ClassVar[str] = "compilation of a teacher"

    compile: str = setting(
        "warm-start", "compile a teacher by changing W, or by replacing it", choices=("warm-start", "overwrite")
    )
    lam: float = setting(1e-2, "ridge penalty of the compilation, lambda", at_least=0)


@dataclass(frozen=True)
class StepDecay(Settings):
    """The decay of the step size."""

    title: ClassVar[str] = "step size"

    eta_decay: float = setting(1.0, "factor on the step size (eta or lr) after each episode", above=0, at_most=1)


@dataclass(frozen=True)
class StepSize(StepDecay):
    """The step size of temporal-difference learning."""

    title: ClassVar[str] = "step size"

    step: str = setting(
        "normalised",
        "whether eta is the step size, or the step size times B lambda_max(E[Phi Phi^T])",
        choices=("plain", "normalised"),
    )
    eta: float = setting(0.8, "step size; with step=normalised, learning is stable below 2", above=0)


@dataclass(frozen=True)
class Memory(Settings):
    """The size of a client's memory."""

    title: ClassVar[str] = "memory"

    replay_size: int = setting(10_000, "transitions that a client stores")


@dataclass(frozen=True)
class Minibatches(Memory):
    """Updates from minibatches of the stored transitions."""

    title: ClassVar[str] = "minibatches"

    batch_size: int = setting(32, "transitions in a minibatch, B")
    update_every: int = setting(1, "steps between updates")

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        super().check(c, need)
        need(c.batch_size <= c.replay_size, "batch_size", f"it must be at most replay_size={c.replay_size}")


@dataclass(frozen=True)
class StoredFeatures(Settings):
    """How a memory stores hypervectors."""

    title: ClassVar[str] = "memory"

    features: str = setting(
        "auto",
        "store hypervectors as float32 or int8, or recompute them",
        choices=("auto", "recompute", "float32", "int8"),
    )

    def stored(self, fused: bool) -> str:
        """Return the type in which the memory stores hypervectors, or "recompute".

        The default is int8, which is fastest for any D. Features that no kernel computes (`fused` is False) may not fit
        into int8, so their default is float32.
        """
        return self.features if self.features != "auto" else "int8" if fused else "float32"


def storage(settings: StoredFeatures, encoder: BaseEncoder) -> str:
    """Return how the hypervectors of this encoder are stored. Raises FedQHDError if int8 is not possible."""
    if settings.features == "int8" and not encoder.fused:
        raise FedQHDError(
            f"features=int8 needs every feature within 1/sqrt(D), which encoder={encoder.name!r} does not guarantee: "
            "choose float32 or recompute"
        )
    return settings.stored(encoder.fused)


def state_bytes(c: Config, n: int) -> int:
    """Return the size in bytes of one state of n variables for each transition in a full memory of one client."""
    return 4 * n * int(c.replay_size)


def feature_bytes(c: Config, stored: str, D: int) -> int:
    """Return the size in bytes of the hypervectors in a full memory of one client."""
    return 0 if stored == "recompute" else real_features(c, D) * c.replay_size * np.dtype(stored).itemsize
