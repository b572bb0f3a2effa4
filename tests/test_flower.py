"""Clients behind Flower compute what they would compute anywhere, and no node can stop the others."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord

from conftest import tiny
from fedqhd.engines import LocalEngine
from fedqhd.engines.flower.client import make_client_app
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import InProcessGrid
from fedqhd.engines.flower.records import payload_of
from fedqhd.engines.flower.simulation import SimulationEngine
from fedqhd.engines.flower.strategy import FedQHD
from fedqhd.experiment.build import build, make_server
from fedqhd.experiment.simulated import open_site
from fedqhd.federation import plan_rounds, run_rounds
from test_engines import state_of
from worlds import CORRIDOR

SETTINGS = [
    {"setting": "homogeneous"},
    {"setting": "heterogeneous", "clients": 3, "encoder": "complex"},
    {"setting": "heterogeneous", "anchor_source": "teacher", "learner": "least-squares", "weights": "precision"},
    {"setting": "heterogeneous", "anchor_source": "visited", "learner": "online"},
    {"setting": "heterogeneous", "method": "truncated-fedavg-qhd", "weights": "steps"},
    {"exchange": "statistics", "learner": "least-squares"},
    {"method": "independent-qhd"},
    {"method": "oracle-qhd"},
    {"method": "fedavg-dqn", "learning_starts": 10, "widths": [8]},
    {"method": "distilled-feddqn", "learning_starts": 10, "widths": [8, 16], "setting": "heterogeneous"},
]


def make_engine(tmp_path, config, **options):
    clients, world = build(config)
    folder = tmp_path / "nodes"
    app = make_client_app(partial(open_site, config, folder))
    grid = InProcessGrid(app, [{"partition-id": i} for i in range(len(clients))])
    return SimulationEngine(grid, clients, folder, "run", world.public.fingerprint(), **options), world


def local_run(config, rounds):
    clients, world = build(config)
    engine = LocalEngine(clients, world.federation)
    server = make_server(config, world.members)
    history = list(run_rounds(engine, world.federation, rounds, server=server))
    return history, engine.each(state_of)


def same(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[k], other[k]) and one[k].dtype == other[k].dtype for k in one)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_behind_a_grid_clients_compute_what_one_process_does(tmp_path, settings):
    config, rounds = tiny(tmp_path, env=CORRIDOR, **settings), plan_rounds(6, 4)
    local, states = local_run(config, rounds)
    engine, world = make_engine(tmp_path, config)
    told = []
    engine.on_episode = told.append
    history = list(run_rounds(engine, world.federation, rounds, server=make_server(config, world.members)))
    assert told == [e for _, replies, _ in local for r in replies for e in r.episodes]
    for (_, replies, teacher), (_, replies_there, teacher_there) in zip(local, history, strict=True):
        assert [r._replace(payload={}, seconds={}) for r in replies] == [
            r._replace(payload={}, seconds={}) for r in replies_there
        ]
        same(teacher, teacher_there)
    for one, other in zip(states, engine.each(state_of), strict=True):
        same(one, other)
