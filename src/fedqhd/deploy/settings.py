"""Which settings belong to the server and which to a client.

The server decides what is exchanged and when; each client decides how it learns.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.length import BY_STEPS
from fedqhd.core.presets import read_toml
from fedqhd.federation.method import method_of
from fedqhd.runs.config import FIELDS, code_names, resolve

SERVER_ONLY = (
    "method", "clients", "episodes", "round_episodes", "steps", "round_steps", "action_repeat", "gamma", "weights",
    "exchange", "temperature", "aggregate", "server_step", "server_momentum", "uplink", "secure", "secure_range",
    "dp_clip", "dp_noise", "dp_delta",
)  # fmt: skip
"""Settings that only the server chooses."""
PUBLIC = ("anchors", "anchor_source", "anchor_file", "scaling", "scale_low", "scale_high")
"""Settings that the server chooses too. A client may give its own, such as the path of its copy of an anchor file, but
is refused if the resulting anchors or scaling differ."""
OVERRIDABLE = ("env", "setting", "seed")
"""Settings that a client takes from the server unless it gives its own. What is public is always drawn with the
server's environment and seed."""
IN_EXPERIMENTS_ONLY = {"attack": "none", "late": 0.0}
"""Settings that make sense only in experiments on one machine, and the values that turn them off."""


RUN_NAME = "run.txt"
"""The file in the folder of a run of `fedqhd federate server` that holds the name by which clients know the run."""


def resume_command(config: Config) -> str:
    """Return the command that resumes a federation."""
    return f"fedqhd federate server --resume --out {config.folder}"


def greeting(c: Config) -> dict[str, str]:
    """Return what a node must know to make its client: the server's settings as TOML."""
    served = Config({name: c.values[name] for name in (*SERVER_ONLY, *PUBLIC, *OVERRIDABLE) if name in c})
    return {"settings": served.to_toml()}


def check_server(c: Config) -> None:
    """Raise FedQHDError for settings that make sense only if one person runs all clients."""
    if method_of(c).pooled:
        raise FedQHDError(
            f"method={c.method!r} pools the data of all clients, which a federation keeps apart: choose another method"
        )
    for name, off in IN_EXPERIMENTS_ONLY.items():
        if c.get(name, off) != off:
            raise FedQHDError(f"{name}={c.values[name]!r} is for experiments on one machine: leave it out")


def needs_one_encoder(c: Config) -> bool:
    """Return whether the clients average parameters, so that one client with another encoder would stop them all."""
    method = method_of(c)
    return bool(c.setting == "homogeneous" and method.federated and not method.uses_anchors(c.values))


def client_settings(greeting: Mapping[str, Any], file: str) -> tuple[Config, Config]:
    """Combine the server's settings with a client's own.

    Args:
        greeting: What the server sent.
        file: The TOML file of the client's settings, or "".

    Returns:
        The settings of the client, and those from which it makes what is public (with the server's environment and
        seed).

    Raises:
        FedQHDError: If the file contradicts the server.
    """
    own = read_toml(Path(file)) if file else {}
    served = {**dict.fromkeys(BY_STEPS, 0), **served_settings(greeting, own)}
    for name in SERVER_ONLY:
        if name in own and own[name] != served.get(name, own[name]):
            raise FedQHDError(
                f"{name}={own[name]!r} in {file} contradicts the server, which has {served[name]!r}: leave it out"
            )
    c = resolve({}, file, shared=served)
    if c.setting == "homogeneous" and c.seed != served["seed"]:
        raise FedQHDError(
            f"seed={c.seed} in {file} makes another encoder than the server's seed={served['seed']}, but "
            "setting='homogeneous' needs one encoder for all: leave the seed out"
        )
    return c, c.replace(env=served["env"], seed=served["seed"])


def served_settings(greeting: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a greeting, of which only those that a server chooses are accepted.

    A server never names code for its clients: a name `module:name` must be in the client's own settings, too.

    Raises:
        FedQHDError: If the greeting is malformed, or sets or names more than a server may.
    """
    try:
        served = tomllib.loads(greeting["settings"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FedQHDError(f"the server sent settings that cannot be read: {error!r:.200}") from error
    for name, value in served.items():
        if name not in (*SERVER_ONLY, *PUBLIC, *OVERRIDABLE):
            raise FedQHDError(f"the server sent {name!r:.80}={value!r:.80}, which is not for a server to choose")
    foreign = sorted(set(code_names(served)) - set(code_names(own)))
    if foreign:
        where = next(name for name, value in served.items() if foreign[0] in code_names({name: value}))
        raise FedQHDError(
            f"the server names code, {where}={foreign[0]!r:.200}: if you trust it, put the same line into the file of "
            "your own settings (--config)"
        )
    missing = {"env", "seed", "clients"} - served.keys()
    if missing:
        raise FedQHDError(f"the server's settings lack {', '.join(sorted(missing))}: is it of another version?")
    return served


def check_client(file: str) -> None:
    """Check a client's file of settings before it connects; "" stands for no file."""
    if file:
        resolve({}, file)
    assert set(SERVER_ONLY) | set(PUBLIC) | set(OVERRIDABLE) <= FIELDS.keys()
