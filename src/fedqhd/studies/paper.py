"""What the paper published, to print beside what we measured."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from fedqhd.federation.method import METHODS

FEDQHD = "fedqhd"
ORACLES = tuple(kind.name for kind in METHODS.all() if kind.pooled)
"""Methods that pool the data of all clients."""


@cache
def figures() -> dict[str, Any]:
    return json.loads((resources.files("fedqhd.studies") / "paper.json").read_text())


def published(table: str, method: str, env: str, setting: str) -> dict[str, float] | None:
    """{mean, std} of a cell, or None where the paper has none."""
    return figures()[table][method][env][setting]


def final_return(method: str, env: str, setting: str) -> dict[str, float] | None:
    return published("final_average_return_last_100_episodes", method, env, setting)


def minutes(method: str, env: str, setting: str) -> dict[str, float] | None:
    return published("wall_clock_minutes", method, env, setting)


# (homogeneous, heterogeneous): what is to be reached at least, and the goal.
TARGETS = {
    "CartPole-v1": ((490, 480), (495, 495)),
    "Acrobot-v1": ((-92, -95), (-82, -82)),
    "LunarLander-v3": ((205, 175), (235, 235)),
    "MountainCar-v0": ((-115, -120), (-110, -110)),
}

# Returns that count as 0 and 1 where environments are put on one scale: about a random policy's, and about the best.
SCALE = {
    "CartPole-v1": (22.0, 500.0),
    "Acrobot-v1": (-500.0, -75.0),
    "LunarLander-v3": (-180.0, 250.0),
    "MountainCar-v0": (-200.0, -100.0),
}


def normalised(env: str, value: float) -> float:
    low, high = SCALE[env]
    return (value - low) / (high - low)
