"""The settings of a run that do not depend on its method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.config import Config
from fedqhd.core.presets import SETTINGS
from fedqhd.core.settings import Need, Settings
from fedqhd.core.settings import setting as define  # one of the settings is called `setting`
from fedqhd.federation.method import METHODS

ENGINES = ("auto", "local", "process", "flower")
LOOPS = ("auto", "python", "compiled")
NEUTRAL = ("out", "engine", "loop", "callbacks")
"""Settings that have no effect on what a run computes."""


@dataclass(frozen=True)
class RunSettings(Settings):
    """What is trained, for how long, and where the results go."""

    title: ClassVar[str] = "run"

    env: str = define("CartPole-v1", "environment: a Gymnasium id, or module:Env", custom=True)
    method: str = define("fedqhd", "method to train with, or module:Class", choices=METHODS.names, custom=True)
    setting: str = define("homogeneous", "one encoder for all clients, or one for each", choices=SETTINGS)
    clients: int = define(5, "number of clients, N")
    episodes: int = define(600, "training episodes per client")
    round_episodes: int = define(50, "episodes per client in a round, K")
    steps: int = define(0, "training steps per client, instead of episodes; needs round_steps", at_least=0)
    round_steps: int = define(0, "steps per client in a round, instead of round_episodes; needs steps", at_least=0)
    eval_episodes: int = define(20, "greedy evaluation episodes per client after training")
    keep: int = define(2, "number of checkpoints to keep during a run")
    engine: str = define(
        "auto",
        "where clients run: in this process, in one process per core, or in Flower's simulation; the results are the "
        "same",
        choices=ENGINES,
    )
    loop: str = define(
        "auto",
        "how episodes are played: step by step in Python, or whole in a compiled kernel, which auto chooses where it "
        "can; the results are the same",
        choices=LOOPS,
    )
    callbacks: tuple[str, ...] = define(
        (), "callbacks with their arguments, such as evaluate:every=2 or module:Class; see docs/callbacks.md",
        custom=True,
    )  # fmt: skip
    seed: int = define(0, "seed of all random numbers", at_least=0)
    out: str = define("", "folder for results (default: runs/ENV-METHOD-SETTING-LEARNER-SEED)")

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(c.get("steps") != 0, "round_steps", "give steps too, the training steps per client")
        need(c.get("round_steps") != 0, "steps", "give round_steps too, the steps per client in a round")
