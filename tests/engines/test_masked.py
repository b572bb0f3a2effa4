"""Secure aggregation: the server gets the mean, nothing else, and gets it when clients drop out, too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from test_flower import Faulty, local_run, make_engine

from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.engines.flower.grid import Patience
from fedqhd.federation import plan_rounds, run_rounds
from fedqhd.runs.build import build, make_server
from fedqhd.runs.config import resolve
from worlds import CORRIDOR

SECURE = {"secure": "secagg+", "aggregate": "mean", "clients": 4, "env": CORRIDOR, "engine": "flower"}
# Each number is rounded to one of 2^22 levels between -range and range, up or down by chance.
STEP = 2 * 1000.0 / 2**22


def masked_engine(tmp_path, monkeypatch, **settings):
    monkeypatch.setattr("test_flower.InProcessGrid", Faulty)
    config = tiny(tmp_path, **{**SECURE, **settings})
    engine, world = make_engine(tmp_path, config, secure_range=config.secure_range)
    server = make_server(config, world.members, world.public)
    engine.on_absent = server.record_absence
    return config, engine, world, server


@pytest.mark.parametrize(
    "settings",
    [{"setting": "heterogeneous"}, {"setting": "homogeneous", "encoder": "complex"}, {"setting": "homogeneous"}],
    ids=["Q", "complex W", "W"],
)
def test_the_teacher_is_the_mean_to_the_last_level(tmp_path, monkeypatch, settings):
    _, engine, world, server = masked_engine(tmp_path, monkeypatch, **settings)
    plain = tiny(tmp_path / "plain", **{**SECURE, **settings, "secure": "off"})
    (_, _, due, _), *_ = local_run(plain, plan_rounds(Quota(3), Quota(3)))[0]
    (_, replies, teacher, _), *_ = run_rounds(engine, world.federation, plan_rounds(Quota(3), Quota(3)), server=server)
    assert len(replies) == 4
    for name in due:
        assert teacher[name].dtype == due[name].dtype
        off = np.abs(np.ascontiguousarray(teacher[name] - due[name])).max()
        assert 0 < off <= STEP * (1 + 1e-3) * (2**0.5 if np.iscomplexobj(due[name]) else 1)


def test_what_the_server_sees_of_a_client_says_nothing_about_its_values(tmp_path, monkeypatch):
    _, engine, world, server = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")
    seen = []
    pull = engine.grid.pull_messages

    def spy(ids):
        answers = pull(ids)
        seen.extend(answers)
        return answers

    engine.grid.pull_messages = spy
    next(run_rounds(engine, world.federation, plan_rounds(Quota(3), Quota(3)), server=server))
    masked = [a.content for a in seen if Key.MASKED_PARAMETERS in a.content.config_records.get(RECORD_KEY_CONFIGS, {})]
    assert len(masked) == 4
    for content in masked:
        assert all(not record for record in content.array_records.values())
        sent = np.frombuffer(content.config_records[RECORD_KEY_CONFIGS][Key.MASKED_PARAMETERS][1][-200:], np.uint32)
        # Uniform over 2^32, though what it masks lies within a few of 2^22 levels.
        assert sent.max() > 2**30


def drop_out(engine, monkeypatch):
    """Client 2 answers nothing from its masked reply on."""
    pull = Faulty.pull_messages

    def losing(self, ids):
        for reply in self._replies.values():
            records = reply.content.config_records.get(RECORD_KEY_CONFIGS, {})
            if self.client(reply) == 2 and Key.MASKED_PARAMETERS in records:
                engine.grid.lost = {2}
        return pull(self, ids)

    monkeypatch.setattr(Faulty, "pull_messages", losing)


def test_a_client_that_drops_out_behind_its_keys_is_left_out_of_the_mean(tmp_path, monkeypatch, caplog):
    config, engine, world, server = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")
    engine.patience = Patience(quorum=0.5, grace=0.2, poll=0.02)
    clients, _ = build(config)
    due = np.mean([c.round(world.federation, None, Quota(3)).payload["Q"] for c in clients if c.index != 2], axis=0)

    drop_out(engine, monkeypatch)
    _, replies, teacher, _ = next(run_rounds(engine, world.federation, plan_rounds(Quota(3), Quota(3)), server=server))
    assert [r.client for r in replies] == [0, 1, 3]
    assert np.abs(teacher["Q"] - due).max() <= STEP * (1 + 1e-3)
    assert "client 2 is left out of this round: it has not answered in time" in caplog.text


def test_below_the_threshold_nothing_is_unmasked(tmp_path, monkeypatch, caplog):
    _, engine, _, _ = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")
    engine.patience = Patience(quorum=0.25, grace=0.1, limit=0.5, poll=0.02)
    engine.grid.lost = {1, 2, 3}
    assert engine.round(None, Quota(1)) == []


def test_a_client_that_was_promised_masks_does_not_answer_in_the_open(tmp_path, monkeypatch, caplog):
    _, engine, _, _ = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")
    engine.secure_range = None
    assert engine.round(None, Quota(1)) == []
    assert "disagree on whether replies are masked" in caplog.text


def test_masked_replies_that_cannot_be_added_up_do_not_stop_the_run(tmp_path, monkeypatch, caplog):
    _, engine, _, server = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")

    def other_shape(client, answer):
        sent = answer.content.config_records.get(RECORD_KEY_CONFIGS, {})
        if client == 1 and Key.MASKED_PARAMETERS in sent:
            sent[Key.MASKED_PARAMETERS] = sent[Key.MASKED_PARAMETERS][:1]
        return answer

    engine.grid.spoil = other_shape
    assert engine.round(None, Quota(1)) == []
    assert "the masked replies cannot be added up" in caplog.text
    assert server.counts == {f"absent/{i}/masked": 1 for i in range(4)}
    engine.grid.spoil = lambda client, answer: answer
    assert len(engine.round(None, Quota(1))) == 4


@pytest.mark.parametrize("stated", ['{"Q": ["<f8", [1, 1]]}', "{}", "[", "x" * 10**6])
def test_a_single_client_that_states_other_shapes_does_not_cost_the_round(tmp_path, monkeypatch, stated):
    _, engine, world, server = masked_engine(tmp_path, monkeypatch, setting="heterogeneous")

    def other_shapes(client, answer):
        sent = answer.content.config_records
        if client == 1 and "shapes" in sent.get("about", {}):
            sent["about"]["shapes"] = stated
        return answer

    engine.grid.spoil = other_shapes
    _, replies, teacher, _ = next(run_rounds(engine, world.federation, [Quota(3)], server=server))
    assert {0, 2, 3} <= {r.client for r in replies}
    assert teacher["Q"].shape == (40, 2)


def test_values_beyond_the_range_are_refused_and_not_cut(tmp_path, monkeypatch, caplog):
    _, engine, _, _ = masked_engine(tmp_path, monkeypatch, setting="heterogeneous", secure_range=1e-9)
    assert engine.round(None, Quota(3)) == []
    assert "beyond secure_range=1e-09" in caplog.text


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"aggregate": "auto"},
            r"aggregate=auto is not possible: with secure=secagg\+ the server cannot look at single replies.*exclude",
        ),
        ({"aggregate": "median"}, "aggregate=median is not possible: .*the two exclude each other"),
        ({"weights": "steps"}, "weights=steps is not possible"),
        ({"uplink": "int8"}, "uplink=int8 is not possible"),
        ({"engine": "process"}, r"engine=process is not possible: secure=secagg\+ needs flower"),
        ({"clients": 2}, "clients=2 is not possible: .*at least 3 clients per round, not 2"),
        ({"participation": 0.5}, "clients=4 is not possible: .*not 2"),
        ({"attack": "noise"}, "attack=noise is not possible"),
        ({"late": 0.1}, "late=0.1 is not possible"),
        ({"secure_range": 0.0}, "secure_range=0.0 is not possible"),
        ({"setting": "heterogeneous", "anchor_source": "visited"}, "anchor_source=visited is not possible"),
        ({"method": "independent-qhd"}, "does nothing for method=independent-qhd"),
        ({"secure": "secagg"}, r"secure='secagg' is unknown \(did you mean 'secagg\+'"),
    ],
)
def test_what_masks_exclude_is_said(settings, sentence):
    with pytest.raises(FedQHDError, match=sentence):
        resolve({**SECURE, **settings})


def test_a_mean_of_two_is_never_unmasked(tmp_path, monkeypatch):
    """Of three clients one drops out; either of the others could subtract its own reply from the mean."""
    _, engine, _, server = masked_engine(tmp_path, monkeypatch, setting="heterogeneous", clients=3)
    engine.patience = Patience(quorum=0.5, grace=0.2, poll=0.02)

    drop_out(engine, monkeypatch)
    assert engine.round(None, Quota(2)) == []
    assert server.counts["absent/0/masked"] == 1


def test_a_server_that_would_unmask_two_is_refused_by_the_clients(tmp_path, monkeypatch):
    _, engine, _, _ = masked_engine(tmp_path, monkeypatch, setting="heterogeneous", clients=4)
    monkeypatch.setattr("fedqhd.engines.flower.masked.SECURE_CLIENTS", 2)
    monkeypatch.setattr("fedqhd.engines.flower.masked.THRESHOLD", 0.5)
    push = engine.grid.push_messages

    def greedy(messages):
        """Ask as a server without our limit would, of clients that have it."""
        with monkeypatch.context() as clients:
            clients.setattr("fedqhd.engines.flower.masked.SECURE_CLIENTS", 3)
            ids = push(messages)
        refusals.extend(reply.error.reason for reply in engine.grid._replies.values())
        return ids

    refusals = []
    engine.grid.push_messages = greedy
    assert engine.round(None, Quota(2)) == []
    assert len(refusals) == 4
    assert all("the server would unmask the sum of 2 replies" in why for why in refusals)
