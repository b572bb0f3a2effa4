"""Whose settings are whose. What is exchanged, and when, is the server's to say; how a client learns is its own."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedqhd.core.errors import FedQHDError
from fedqhd.runs.config import FIELDS, Config, known_keys, read_toml, resolve

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
    told = {name: getattr(c, name) for name in (*SERVERS, *PUBLIC, *DEFAULT)}
    return {"settings": tomli_w.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in told.items()})}


def check_server(c: Config) -> None:
    """Refuse what makes sense only where all clients are in one hand."""
    if c.method.startswith("oracle"):
        raise FedQHDError(f"method={c.method!r} pools the data of all clients, which a federation keeps apart")
    for name, none in IN_EXPERIMENTS_ONLY.items():
        if getattr(c, name) != none:
            raise FedQHDError(f"{name}={getattr(c, name)!r} is for experiments on one machine: leave it out")


def client_settings(greeting: Mapping[str, Any], file: str) -> tuple[Config, Config]:
    """(its own settings, those of the public world as it sees it) of a client with a file of settings, or with none."""
    told = known_keys("the server", tomllib.loads(greeting["settings"]))
    own = known_keys(f"config={file!r}", read_toml(Path(file))) if file else {}
    for name in SERVERS:
        if name in own and own[name] != told[name]:
            raise FedQHDError(
                f"{name}={own[name]!r} in {file} is for the server to choose, which has {told[name]!r}: leave it out"
            )
    c = resolve({**told, **own})
    if c.setting == "homogeneous" and c.seed != told["seed"]:
        raise FedQHDError(
            f"seed={c.seed} in {file} makes another encoder than the server's seed={told['seed']}, and "
            "setting='homogeneous' means one for all: leave the seed out"
        )
    return c, dataclasses.replace(c, env=told["env"], seed=told["seed"])


def check_client(file: str) -> None:
    """What can be said of a client's file before it meets the server."""
    if file:
        resolve({}, file)
    assert set(SERVERS) | set(PUBLIC) | set(DEFAULT) <= FIELDS.keys()
