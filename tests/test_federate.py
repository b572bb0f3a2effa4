"""A federation of real processes over loopback, as the documentation has it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedqhd.deploy.settings import client_settings, greeting
from fedqhd.engines import LocalEngine
from fedqhd.engines.flower import QUIET
from fedqhd.experiment.build import make_client, make_federation, make_public, make_server, member
from fedqhd.experiment.config import resolve
from fedqhd.experiment.outcome import evaluate
from fedqhd.experiment.run import rows
from fedqhd.federation import Terms, plan_rounds, run_rounds
from processes import FEDQHD, end, gone, read_until, start

pytestmark = pytest.mark.federation

DOCS = Path(__file__).parents[1] / "docs" / "federation.md"
APP = Path(__file__).parents[1] / "src" / "fedqhd" / "deploy" / "app"
BLOCK = re.compile(r"^```(?:toml|bash) (.+?)\n(.*?)^```$", re.M | re.S)


def blocks():
    """The code of the page, by its title."""
    return dict(BLOCK.findall(DOCS.read_text()))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def terminals(tmp_path):
    """Start commands in a folder; what is left of them ends with the test."""
    started = []
    path = os.pathsep.join([str(FEDQHD.parent), os.environ["PATH"]])
    surroundings = {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(tmp_path / "home"), "APP": str(APP)}

    def terminal(command, **more):
        started.append(start("bash", "-c", f"exec {command}", cwd=tmp_path, env={**surroundings, **more}))
        return started[-1]

    yield terminal
    for process in started:
        end(process)


def ported(command, port):
    """The page's commands have fixed ports; here others may run beside us."""
    for fixed in re.findall(r"--port (\d+)", command):
        command = command.replace(f"--port {fixed}", f"--port {port if fixed == '9093' else free_port()}")
    command = command.replace("127.0.0.1:9093", f"127.0.0.1:{port}")
    return f"{command.strip()} --port {port}" if command.startswith("fedqhd federate server") else command


def lay_out(folder):
    for name, text in blocks().items():
        if name.endswith(".toml"):
            (folder / name).write_text(text)


def in_one_process(folder, files):
    """The same clients of the same files in one process: metrics, and models beside them."""
    server_config = resolve({"out": str(folder / "one")}, str(folder / "server.toml"))
    clients, configs = [], []
    for i, file in enumerate(files):
        own, shared = client_settings(greeting(server_config), str(folder / file))
        configs.append(dataclasses.replace(own, out=str(folder / "one")))
        clients.append(make_client(configs[-1], i, make_public(shared)))
    public = make_public(server_config)
    members = [member(client) for client in clients]
    federation = make_federation(server_config, Terms.of(members), public)
    rounds = plan_rounds(server_config.episodes, server_config.round_episodes)
    history = list(
        run_rounds(LocalEngine(clients, federation), federation, rounds, server=make_server(server_config, members))
    )
    for c, client in zip(configs, clients, strict=True):
        evaluate(c, public.scaler, client)
    lines = [json.dumps(row) + "\n" for k, replies, _ in history for row in rows(k, replies)]
    return "".join(lines), [(folder / "one" / "models" / f"client-{i}.npz").read_bytes() for i in range(len(files))]


def test_the_walk_through_gives_the_bits_of_one_process(tmp_path, terminals):
    lay_out(tmp_path)
    port = free_port()
    commands = [ported(blocks()[f"terminal {i}"], port) for i in (1, 2, 3)]
    server, *clients = [terminals(command) for command in commands]
    for process in (*clients, server):
        said = process.communicate(timeout=120)[0]
        assert process.returncode == 0, said
    assert "client 1" in said
    assert "results in runs/federation" in said
    metrics, models = in_one_process(tmp_path, ["one.toml", "two.toml"])
    assert (tmp_path / "runs/federation/metrics.jsonl").read_text() == metrics
    for i, home in enumerate(("one", "two")):
        assert (tmp_path / "state" / home / "models" / f"client-{i}.npz").read_bytes() == models[i]
    assert not (tmp_path / "runs/federation/models").exists()
    assert all(gone(process) for process in (server, *clients))


def test_flowers_own_commands_do_the_same(tmp_path, terminals):
    lay_out(tmp_path)
    port = free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    programs = [terminals(ported(blocks()[f"flower {i}"], port)) for i in (1, 2, 3)]
    read_until(programs[0], "Application startup complete")
    run = terminals(blocks()["flower 4"])
    said = run.communicate(timeout=120)[0]
    assert "round 3/3" in said
    metrics, models = in_one_process(tmp_path, ["one.toml", "two.toml"])
    assert (tmp_path / "runs/flower/metrics.jsonl").read_text() == metrics
    assert (tmp_path / "state" / "two" / "models" / "client-1.npz").read_bytes() == models[1]
