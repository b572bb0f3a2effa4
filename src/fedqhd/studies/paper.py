"""The published numbers of the paper, for comparison with ours."""

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
    """Return all published numbers, from paper.json."""
    return json.loads((resources.files("fedqhd.studies") / "paper.json").read_text())


def published(table: str, method: str, env: str, setting: str) -> dict[str, float] | None:
    """Return {mean, std} of a cell in one of the paper's tables, or None if the paper has no such cell."""
    return figures()[table][method][env][setting]


def final_return(method: str, env: str, setting: str) -> dict[str, float] | None:
    """Return {mean, std} of the training return over the last 100 episodes, or None if it is not published."""
    return published("final_average_return_last_100_episodes", method, env, setting)


def minutes(method: str, env: str, setting: str) -> dict[str, float] | None:
    """Return {mean, std} of the wall-clock minutes of a run, or None if they are not published."""
    return published("wall_clock_minutes", method, env, setting)


# The least acceptable return and the goal of FedQHD, each as (homogeneous, heterogeneous).
TARGETS = {
    "CartPole-v1": ((490, 480), (495, 495)),
    "Acrobot-v1": ((-92, -95), (-82, -82)),
    "LunarLander-v3": ((205, 175), (235, 235)),
    "MountainCar-v0": ((-115, -120), (-110, -110)),
}

# The returns that correspond to scores of 0 and 1: about those of a random policy and of the best known one.
SCALE = {
    "CartPole-v1": (22.0, 500.0),
    "Acrobot-v1": (-500.0, -75.0),
    "LunarLander-v3": (-180.0, 250.0),
    "MountainCar-v0": (-200.0, -100.0),
}


def normalised(env: str, value: float) -> float:
    """Return the score of a return: 0 for about a random policy, 1 for about the best known one."""
    low, high = SCALE[env]
    return (value - low) / (high - low)
