"""Settings that several learners share; each learner's own are in its file."""

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
    """Epsilon falls geometrically, an episode at a time, to a floor."""

    title: ClassVar[str] = "exploration"

    epsilon_start: float = setting(1.0, "exploration in the first episode", at_least=0, at_most=1)
    epsilon_end: float = setting(0.001, "exploration at the least", at_least=0, at_most=1)
    epsilon_decay: float = setting(0.985, "factor on exploration after each episode", above=0, at_most=1)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        super().check(c, need)
        need(c.epsilon_end <= c.epsilon_start, "epsilon_start", f"it must be at least epsilon_end={c.epsilon_end}")

    def decayed(self, epsilon: float) -> float:
        """Exploration after one more episode."""
        return max(self.epsilon_end, epsilon * self.epsilon_decay)


@dataclass(frozen=True)
class Compilation(Settings):
    """How a teacher is compiled into a readout."""

    title: ClassVar[str] = "compilation of a teacher"

    compile: str = setting("warm-start", "how a teacher is compiled into W", choices=("warm-start", "overwrite"))
    lam: float = setting(1e-2, "ridge of the compilation, lambda", at_least=0)


@dataclass(frozen=True)
class StepDecay(Settings):
    """How the step size of gradient steps shrinks."""

    title: ClassVar[str] = "step size"

    eta_decay: float = setting(1.0, "factor on the step size (eta or lr) after each episode", above=0, at_most=1)


@dataclass(frozen=True)
class StepSize(StepDecay):
    """The step size of temporal-difference learning."""

    title: ClassVar[str] = "step size"

    step: str = setting(
        "normalised", "is eta the step size, or that times B lambda_max(E[Phi Phi^T])?", choices=("plain", "normalised")
    )
    eta: float = setting(0.8, "step size; with step=normalised, below 2 is stable", above=0)


@dataclass(frozen=True)
class Memory(Settings):
    """How much a client remembers."""

    title: ClassVar[str] = "memory"

    replay_size: int = setting(10_000, "transitions that a client keeps")


@dataclass(frozen=True)
class Minibatches(Memory):
    """Updates from minibatches of what a client remembers."""

    title: ClassVar[str] = "minibatches"

    batch_size: int = setting(32, "transitions an update, B")
    update_every: int = setting(1, "steps between updates")

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        super().check(c, need)
        need(c.batch_size <= c.replay_size, "batch_size", f"it must be at most replay_size={c.replay_size}")


@dataclass(frozen=True)
class StoredFeatures(Settings):
    """How a memory keeps hypervectors."""

    title: ClassVar[str] = "memory"

    features: str = setting(
        "auto",
        "hypervectors kept as float32 or int8, or made anew",
        choices=("auto", "recompute", "float32", "int8"),
    )

    def stored(self, fused: bool) -> str:
        """How the memory keeps hypervectors. By default rounded to int8, the fastest at any D; those of an encoder
        that no kernel makes (`fused` is false) may not fit that."""
        return self.features if self.features != "auto" else "int8" if fused else "float32"


def storage(settings: StoredFeatures, encoder: BaseEncoder) -> str:
    """How the hypervectors of this encoder are kept, or one sentence on why they cannot be."""
    if settings.features == "int8" and not encoder.fused:
        raise FedQHDError(
            f"features=int8 needs every feature within 1/sqrt(D), which encoder={encoder.name!r} does not promise: "
            "choose float32 or recompute"
        )
    return settings.stored(encoder.fused)


def feature_bytes(c: Config, stored: str, D: int) -> int:
    """Of the hypervectors in one client's memory, when it is full."""
    return 0 if stored == "recompute" else real_features(c, D) * c.replay_size * np.dtype(stored).itemsize
