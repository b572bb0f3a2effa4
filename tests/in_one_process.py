"""What the clients of a federation of real processes compute when they take turns in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedqhd.core.blas import single_threaded
from fedqhd.core.length import planned
from fedqhd.deploy.client import ENCODER_SEED
from fedqhd.deploy.settings import client_settings, greeting
from fedqhd.engines import LocalEngine
from fedqhd.envs.public import make_public
from fedqhd.federation import Server, Terms, run_rounds
from fedqhd.runs.build import make_client, make_federation, make_server, member
from fedqhd.runs.config import resolve
from fedqhd.runs.metrics import rows
from fedqhd.runs.outcome import evaluate


class Played(NamedTuple):
    metrics: str
    """What metrics.jsonl must hold."""
    models: list[bytes]
    """What the file of each client's model must hold."""
    server: Server


def in_one_process(
    folder: Path, homes: dict[str, str | None], make_engine: Callable = LocalEngine, rounds: int | None = None
) -> Played:
    """Play the federation of server.toml and of the files of its clients.

    `homes` has the folder of each client's state by its file; None stands for an encoder of the run's seed.
    `make_engine(clients, federation)` may let clients miss rounds; `rounds` ends the run early.
    """
    server_config = resolve({"out": str(folder / "one")}, str(folder / "server.toml"))
    clients, configs = [], []
    for i, (file, home) in enumerate(homes.items()):
        own, shared = client_settings(greeting(server_config), str(folder / file))
        seed = int((folder / home / ENCODER_SEED).read_text()) if home else own.seed
        configs.append(own.replace(out=str(folder / "one"), encoder_seed=seed))
        clients.append(make_client(configs[-1], i, make_public(shared)))
    public = make_public(server_config)
    members = [member(client) for client in clients]
    federation = make_federation(server_config, Terms.of(members), public)
    server = make_server(server_config, members, public)
    with single_threaded():  # as in the programs of a federation
        history = list(
            run_rounds(make_engine(clients, federation), federation, planned(server_config)[:rounds], server=server)
        )
    for c, client in zip(configs, clients, strict=True):
        evaluate(c, public.scaler, client)
    lines = [json.dumps(row) + "\n" for k, replies, _, _ in history for row in rows(k, replies)]
    models = [(folder / "one" / "models" / f"client-{i}.npz").read_bytes() for i in range(len(homes))]
    return Played("".join(lines), models, server)
