"""What a client on the network keeps to itself: its privacy budget and the seed of its encoder."""

from __future__ import annotations

import math
import stat

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import DamagedFile
from fedqhd.core.protocols import Quota
from fedqhd.deploy.client import ENCODER_SEED, app, site
from fedqhd.deploy.settings import greeting
from fedqhd.engines.flower.account import Account
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import InProcessGrid
from fedqhd.envs.public import make_public
from fedqhd.federation.wrappers.accountant import epsilon_of
from fedqhd.runs.build import make_client
from fedqhd.runs.config import resolve
from worlds import CORRIDOR

SERVER = {
    "env": CORRIDOR, "setting": "heterogeneous", "learner": "replay", "clients": 2, "dims": [20], "anchors": 30,
    "anchor_source": "rollout", "aggregate": "mean", "scaling": "rollout", "out": "somewhere",
}  # fmt: skip
NOISE = {"dp_clip": 3.0, "dp_noise": 2.0}


class Federated:
    """A server and its clients' own programs, with messages as on a network, but in one process."""

    def __init__(self, folder, run="run", epsilon=None, **settings):
        config = resolve({**SERVER, **settings})
        nodes = [{"partition-id": i, "state-dir": str(folder / str(i))} for i in range(config.clients)]
        if epsilon is not None:
            nodes[0]["epsilon"] = epsilon
        grid = InProcessGrid(app, nodes)
        self.missed = []
        self.engine = FlowerEngine(
            grid, run, greeting(config), make_public(config).fingerprint(),
            on_absent=lambda client, kind, sentence: self.missed.append((client, sentence)),
        )  # fmt: skip
        self.engine.gather(config.clients)

    def ask(self, exchange, teacher=None):
        """The Q that each client answers with, by client."""
        self.engine.restore(dict.fromkeys(("flower/exchange", "flower/asked"), np.array(exchange)))
        return {r.client: r.payload["Q"] for r in self.engine.round(teacher, Quota(1))}


def test_a_question_asked_again_gets_the_same_answer_and_costs_nothing(tmp_path):
    """Otherwise, a server that asks often enough averages the noise away, or a repeated round costs twice."""
    server = Federated(tmp_path, **NOISE)
    first = server.ask(0)
    teacher = {"Q": first[0]}
    second = server.ask(1, teacher)
    for _ in range(3):
        again = server.ask(1, teacher)
        assert all(np.array_equal(again[i], second[i]) for i in second)
    account = Account(tmp_path / "0" / "privacy", 2.0, 1e-5)
    assert account.answers() == 2
    assert account.epsilon() == pytest.approx(epsilon_of(2.0, 2, 1e-5))
    # Another question in the same place is another answer, at its price.
    other = server.ask(1, {"Q": first[0] + 1})
    assert not np.array_equal(other[0], second[0])
    assert account.answers() == 3


def test_a_client_answers_within_its_budget_in_all_runs_together_and_then_no_more(tmp_path):
    budget = epsilon_of(2.0, 3, 1e-5)
    server = Federated(tmp_path, epsilon=budget * 1.001, **NOISE)
    assert server.ask(0).keys() == server.ask(1, {"Q": np.zeros((30, 2), np.float32)}).keys() == {0, 1}
    later = Federated(tmp_path, run="another", epsilon=budget * 1.001, **NOISE)
    assert later.ask(0).keys() == {0, 1}
    assert later.ask(1, {"Q": np.ones((30, 2), np.float32)}).keys() == {1}  # which has set no limit
    ((client, sentence),) = later.missed
    assert client == 0
    assert f"epsilon={budget * 1.001:g} allows no further answer" in sentence
    assert "after 3 answers" in sentence
    # What it has answered it may still repeat.
    assert later.ask(0).keys() == {0, 1}


def test_a_damaged_account_is_no_empty_one(tmp_path):
    server = Federated(tmp_path, epsilon=100.0, **NOISE)
    server.ask(0)
    newest = tmp_path / "0" / "privacy" / "answer-000001.npz"
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(DamagedFile, match=r"answer-000001\.npz is damaged"):
        Account(newest.parent, 2.0, 1e-5).epsilon()
    assert server.ask(1, {"Q": np.zeros((30, 2), np.float32)}).keys() == {1}


def test_answers_without_noise_have_no_finite_epsilon(tmp_path):
    server = Federated(tmp_path, dp_clip=3.0, dp_noise=0.0, epsilon=1e9)
    assert server.ask(0).keys() == {1}
    assert Account(tmp_path / "1" / "privacy", 0.0, 1e-5).epsilon() == math.inf


@pytest.fixture
def home(tmp_path):
    """Make a client as its node does, in a folder of its own."""
    (tmp_path / "client.toml").write_text("dims = [20]\n")

    def make(folder, client=0, server=SERVER, **node):
        told = {**greeting(resolve(server)), "run": "r"}
        own = {"partition-id": client, "state-dir": str(tmp_path / folder), "config": str(tmp_path / "client.toml")}
        return site({**own, **node}, told)

    return make


def test_a_budget_without_differential_privacy_is_refused(home):
    with pytest.raises(FedQHDError, match=r"epsilon=2 needs differential privacy, but the server has dp_clip=0"):
        home("one", epsilon=2.0)


def test_a_client_has_an_encoder_that_nobody_else_can_draw_and_keeps_it(home, tmp_path):
    def fingerprint(folder, **node):
        return home(folder, **node).member.fingerprint

    config = resolve(SERVER)
    known = make_client(config, 0, make_public(config)).agent.fingerprint()  # what the server could draw
    own = fingerprint("one")
    assert len({own, fingerprint("two"), known}) == 3
    assert fingerprint("one") == own
    assert fingerprint("three", **{"encoder-seed": config.seed}) == known
    assert not (tmp_path / "three" / ENCODER_SEED).exists()
    assert stat.S_IMODE((tmp_path / "one" / ENCODER_SEED).stat().st_mode) == 0o600
    (tmp_path / "one" / ENCODER_SEED).write_text("none\n")
    with pytest.raises(DamagedFile, match="holds no seed"):
        fingerprint("one")


def test_clients_with_one_encoder_draw_it_from_the_servers_seed(home):
    server = {k: v for k, v in SERVER.items() if "anchor" not in k} | {"setting": "homogeneous"}
    assert len({home(str(i), i, server).member.fingerprint for i in (0, 1)}) == 1
