"""The settings of a run itself, whatever its method is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedqhd.core.presets import SETTINGS
from fedqhd.core.settings import Settings
from fedqhd.core.settings import setting as define  # one of the settings is called `setting`
from fedqhd.federation.method import METHODS

ENGINES = ("auto", "local", "process", "flower")


@dataclass(frozen=True)
class RunSettings(Settings):
    """What is trained, for how long, and where the results go."""

    title: ClassVar[str] = "run"

    env: str = define("CartPole-v1", "environment: a Gymnasium id, or module:Env", custom=True)
    method: str = define("fedqhd", "what is trained, or module:Class", choices=METHODS.names, custom=True)
    setting: str = define("homogeneous", "one encoder for all clients, or one each", choices=SETTINGS)
    clients: int = define(5, "number of clients, N")
    episodes: int = define(600, "training episodes a client")
    round_episodes: int = define(50, "episodes between federations, K")
    eval_episodes: int = define(20, "greedy evaluation episodes a client after training")
    keep: int = define(2, "checkpoints kept while a run lasts")
    engine: str = define(
        "auto",
        "clients in this process, one process a core, or Flower's simulation: the results are the same",
        choices=ENGINES,
    )
    seed: int = define(0, "seed of every random draw", at_least=0)
    out: str = define("", "folder for results (default: runs/ENV-METHOD-SETTING-LEARNER-SEED)")
