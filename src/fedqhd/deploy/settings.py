"""Whose settings are whose. What is exchanged, and when, is the server's to say; how a client learns is its own."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import read_toml
from fedqhd.federation.method import method_of
from fedqhd.runs.config import FIELDS, resolve

SERVERS = (
    "method", "clients", "episodes", "round_episodes", "action_repeat", "gamma", "weights", "exchange", "temperature",
    "aggregate", "uplink", "secure", "secure_range", "dp_clip", "dp_noise", "dp_delta",
)  # fmt: skip
"""Settings that are the server's alone."""
PUBLIC = ("anchors", "anchor_source", "anchor_file", "scaling", "scale_low", "scale_high")
"""The server's too; a client may have its own say (its own copy of a file of anchors, say), and is refused where what
comes of it is not the same."""
DEFAULT = ("env", "setting", "seed")
"""The server's for clients that say nothing else. Public draws are by its environment and its seed in any case."""
IN_EXPERIMENTS_ONLY = {"attack": "none", "late": 0.0}


def greeting(c: Config) -> dict[str, str]:
    """What a node has to know."""
    served = Config({name: c.values[name] for name in (*SERVERS, *PUBLIC, *DEFAULT) if name in c})
    return {"settings": served.to_toml()}


def check_server(c: Config) -> None:
    """Refuse what makes sense only where all clients are in one hand."""
    if method_of(c).pooled:
        raise FedQHDError(f"method={c.method!r} pools the data of all clients, which a federation keeps apart")
    for name, none in IN_EXPERIMENTS_ONLY.items():
        if c.get(name, none) != none:
            raise FedQHDError(f"{name}={c.values[name]!r} is for experiments on one machine: leave it out")


def client_settings(greeting: Mapping[str, Any], file: str) -> tuple[Config, Config]:
    """(its own settings, those of the public world as it sees it) of a client with a file of settings, or with none."""
    served = tomllib.loads(greeting["settings"])
    own = read_toml(Path(file)) if file else {}
    for name in SERVERS:
        if name in own and own[name] != served.get(name, own[name]):
            raise FedQHDError(
                f"{name}={own[name]!r} in {file} is for the server to choose, which has {served[name]!r}: leave it out"
            )
    c = resolve({}, file, shared=served)
    if c.setting == "homogeneous" and c.seed != served["seed"]:
        raise FedQHDError(
            f"seed={c.seed} in {file} makes another encoder than the server's seed={served['seed']}, and "
            "setting='homogeneous' means one for all: leave the seed out"
        )
    return c, c.replace(env=served["env"], seed=served["seed"])


def check_client(file: str) -> None:
    """What can be said of a client's file before it meets the server."""
    if file:
        resolve({}, file)
    assert set(SERVERS) | set(PUBLIC) | set(DEFAULT) <= FIELDS.keys()
