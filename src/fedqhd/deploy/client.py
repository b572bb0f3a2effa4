"""The client's program, `fedqhd.deploy.client:app`, which a SuperNode starts for every message.

The node-config holds the number of the client (partition-id), the folder of its state (state-dir) and, optionally, the
file of its own settings (config), the seed of its encoder (encoder-seed) and its privacy budget (epsilon).
"""

from __future__ import annotations

import logging
import math
import secrets
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fedqhd.agents.client import LocalClient
from fedqhd.agents.policy import models_of
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged, make_durable, write_secret
from fedqhd.core.trust import remember
from fedqhd.deploy.rules import HOME, folder_name
from fedqhd.deploy.settings import client_settings
from fedqhd.engines.flower.account import Account
from fedqhd.engines.flower.client import Site, make_client_app
from fedqhd.envs.make import spaces_of, step_limit
from fedqhd.envs.public import Public, make_public
from fedqhd.envs.scaling import StateScaler
from fedqhd.runs.build import check_environment, make_client, make_federation, member
from fedqhd.runs.config import code_names
from fedqhd.runs.outcome import evaluate, measure
from fedqhd.runs.private import secure_range

log = logging.getLogger("fedqhd")

ENCODER_SEED = "encoder-seed"
"""The file in a client's folder that holds the seed of its encoder."""


def open_site(context: Context, greeting: Mapping[str, Any]) -> Site:
    """Make the client of a node."""
    return site(context.node_config, greeting)


def log_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer a message, and log errors that a user can fix, such as a full disk, on the machine of the client."""
    try:
        return call_next(message, context)
    except (FedQHDError, OSError) as error:
        log.error("fedqhd: %s", error)  # the server receives it too, but the person who can fix it is here
        raise


def site(node: Mapping[str, Any], greeting: Mapping[str, Any]) -> Site:
    """Make the client of a node.

    Args:
        node: The node-config.
        greeting: What the server sent: its settings, the name of the run and the fingerprint of its world.

    Raises:
        FedQHDError: If the node-config or the client's settings do not fit the server's.
    """
    missing = {"partition-id", "state-dir"} - node.keys()
    if missing:
        raise FedQHDError(f'node-config lacks {", ".join(sorted(missing))}: give partition-id=0 state-dir="FOLDER"')
    index, home = int(node["partition-id"]), Path(node["state-dir"])
    c, shared = client_settings(greeting, str(node.get("config", "")))
    c = c.replace(out=str(home))
    if c.setting == "heterogeneous":
        c = c.replace(encoder_seed=encoder_seed(home, node.get("encoder-seed")))
    if not 0 <= index < c.clients:
        raise FedQHDError(f"partition-id={index} is not possible: the server has clients 0 to {c.clients - 1}")
    remember(home, code_names(c.values))
    check_environment(c, [index])
    public = make_public(shared)
    world = public.fingerprint()
    if greeting.get("world", world) != world:
        log.error("fedqhd: the server has other anchors, scaling or actions: %s, but here %s", greeting["world"], world)
    check_spaces(c, shared.env, public)
    client = make_client(c, index, public)
    return Site(
        client=client,
        member=member(client),
        world=world,
        federation=partial(make_federation, c, public=public, secret=True),  # the server knows the seeds
        folder=home / f"run-{greeting['run']}",
        measure=partial(measure, c, public.scaler),
        close=partial(close, c, public.scaler),
        uplink=c.get("uplink", "full"),
        account=open_account(c, home, float(node.get("epsilon", math.inf))),
        secure_range=secure_range(c),
        name=folder_name(home / HOME),
    )


def encoder_seed(home: Path, given: Any) -> int:
    """Return the seed of a client's own encoder: the one `given`, or a random one that stays in its folder.

    From the run's seed, which the server knows, it could draw the encoder again and read more from the replies.
    """
    if given is not None:
        return int(given)
    path = home / ENCODER_SEED
    if not path.exists():
        write_secret(path, f"{secrets.randbits(128)}\n".encode())
    try:
        return int(path.read_text())
    except ValueError as error:
        raise damaged(path, "it holds no seed") from error


def open_account(c: Config, home: Path, budget: float) -> Account | None:
    """Return the privacy account of a client; None without differential privacy.

    Raises:
        FedQHDError: If the client has a budget, but the server has no differential privacy.
    """
    if c.get("dp_clip"):
        return Account(home / "privacy", c.dp_noise, c.dp_delta, budget)
    if math.isfinite(budget):
        raise FedQHDError(f"epsilon={budget:g} needs differential privacy, but the server has dp_clip=0")
    return None


def check_spaces(c: Config, server_env: str, public: Public) -> None:
    """Raise FedQHDError if the client's environment has other state variables or actions than the server's.

    Otherwise, the environments may differ. But if steps are weights, no client may have longer episodes than the server
    knows, since the server could not tell them from invented ones.
    """
    if c.env == server_env:
        return
    own = spaces_of(c.env)[:2]
    due = len(public.scaler.shift), public.actions
    if own != due:
        raise FedQHDError(
            f"env={c.env!r} has {own[0]} state variables and {own[1]} actions, but the server's {server_env!r} has "
            f"{due[0]} and {due[1]}: they must be the same"
        )
    if c.get("weights") == "steps" and step_limit(c.env) > step_limit(server_env):
        raise FedQHDError(
            f"env={c.env!r} has episodes of up to {step_limit(c.env)} steps, but the server's {server_env!r} only of "
            f"{step_limit(server_env)}: with weights='steps' they may not be longer"
        )


def close(c: Config, scaler: StateScaler, client: LocalClient) -> dict[str, Any]:
    """Save the trained model on the client's machine and return its evaluation for the server."""
    greedy, nominal, updates, alarms = evaluate(c, scaler, client)
    make_durable(models_of(c.folder))
    return {"greedy": greedy, "nominal": nominal, "updates": updates, **({} if alarms is None else {"alarms": alarms})}


def set_up_logging() -> None:
    """Log to the standard output, where `fedqhd federate client` or the user of a SuperNode reads it."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


set_up_logging()
app = make_client_app(open_site, log_errors)
