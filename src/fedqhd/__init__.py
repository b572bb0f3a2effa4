"""Federated Q-learning in function space.

import fedqhd
summary = fedqhd.train(env="CartPole-v1", setting="heterogeneous", out="runs/first")
policy = fedqhd.load_policy("runs/first", client=0)
action, _ = policy.predict(observation)
"""

from __future__ import annotations

import importlib
from typing import Any

from fedqhd._version import __version__

# The module of each public name. Modules are imported on first use, which keeps `fedqhd --help` fast.
_HOME = {
    "train": "api",
    "evaluate": "api",
    "gap": "api",
    "advise": "api",
    "Config": "core.config",
    "resolve": "runs.config",
    "Policy": "agents.policy",
    "load_policy": "agents.policy",
    "RandomFourier": "encoders",
    "ComplexFourier": "encoders",
    "Symbolic": "encoders",
    "load_encoder": "encoders",
    "OnlineQHD": "agents",
    "ReplayQHD": "agents",
    "OnlineSettings": "agents",
    "ReplaySettings": "agents",
    "Method": "federation.method",
    "Learner": "agents",
    "LocalClient": "agents.client",
    "ParameterAverage": "federation",
    "AnchorCompile": "federation",
    "VisitedAnchors": "federation",
    "run_rounds": "federation",
    "LocalEngine": "engines",
    "StateScaler": "envs.scaling",
    "make_env": "envs.make",
    "compile_teacher": "linalg.ridge",
    "Ridge": "linalg.ridge",
    "FedQHDError": "core.errors",
    "Transition": "core.protocols",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"fedqhd.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fedqhd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
