"""One schema for every message: what does not fit it is refused with one sentence, on either side."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MessageType, MetricRecord, RecordDict
from test_flower import Faulty

from conftest import tiny
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.engines.flower.client import make_client_app
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import InProcessGrid, Patience
from fedqhd.engines.flower.records import (
    Introduction,
    Order,
    read_greeting,
    read_introduction,
    read_order,
    read_outcome,
    read_trial,
    write_greeting,
    write_introduction,
    write_order,
    write_trial,
)
from fedqhd.engines.flower.schema import size_of
from fedqhd.federation import Participant, Terms
from fedqhd.federation.validate import Refused
from fedqhd.runs.build import build, make_server
from fedqhd.runs.simulated import open_site
from mutants import header, sent, spoil
from worlds import CORRIDOR

W = {"W": np.zeros((6, 2), np.float32)}
TERMS = Terms(True, W)
ORDER = Order("run", 3, Quota(2), TERMS, {"W": np.ones((6, 2))})
OUTCOME = {"greedy": [1.0], "nominal": [], "updates": 7, "alarms": 0}


def introduction():
    return write_introduction(Introduction(0, Participant("print", like=W), "world"))


def outcome():
    return RecordDict({"metrics": MetricRecord(dict(OUTCOME))})


MESSAGES = {
    "greeting": (lambda: write_greeting({"run": "run", "world": "world"}), read_greeting),
    "introduction": (introduction, read_introduction),
    "order": (lambda: write_order(ORDER, {}), partial(read_order, training=True)),
    "order of steps": (
        lambda: write_order(ORDER._replace(quota=Quota(steps=9)), {}),
        partial(read_order, training=True),
    ),
    "finish": (lambda: write_order(ORDER._replace(quota=Quota()), {}), partial(read_order, training=False)),
    "question": (
        lambda: write_order(ORDER._replace(quota=Quota(), trial=Trial(3, 0, True)), {}),
        partial(read_order, training=False),
    ),
    "trial": (lambda: write_trial(np.zeros((1, 3))), partial(read_trial, trial=Trial(3, 0, True))),
    "outcome": (outcome, partial(read_outcome, sites=1)),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_one_thing_wrong_is_refused_in_one_sentence_or_is_another_good_message(name):
    write, read = MESSAGES[name]
    read(write())  # negative control
    rng, refused = np.random.default_rng(0), 0
    for _ in range(400):
        content = write()
        label = spoil(rng, content)
        try:
            read(content)
        except (Refused, FedQHDError) as why:
            assert "\n" not in str(why), label
            assert len(str(why)) < 400, label
            refused += 1
    assert refused > 300


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_a_field_missing_or_too_many_is_refused(name):
    write, read = MESSAGES[name]
    for record in write():
        for key in write()[record]:
            content = write()
            if key == "alarms":  # only learners that undo fits have it
                continue
            del content[record][key]
            if name in ("order", "order of steps", "finish", "question") and record == "arrays":
                continue  # which arrays a teacher has is for the federation to say
            with pytest.raises((Refused, FedQHDError), match=r"missing|not with returns"):
                read(content)
        content = write()
        content[record]["more"] = Array(np.zeros(1)) if isinstance(content[record], ArrayRecord) else 1
        if not (record == "arrays" and name != "trial"):
            with pytest.raises((Refused, FedQHDError), match=r"unknown|not with returns"):
                read(content)


def about(write, **changes):
    content = write()
    content.config_records["about"].update(changes)
    return content


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"run": "../../home"}, "its run is '../../home', but must be a printable text of at most 64 characters"),
        ({"exchange": -1}, "its exchange is -1"),
        ({"episodes": 0}, "it asks for 0 episodes and 0 steps, and must ask for one of the two"),
        ({"steps": 5}, "it asks for 2 episodes and 5 steps, and must ask for one of the two"),
        ({"episodes": -1}, "its episodes is -1, but must be a whole number from 0 to"),
        ({"steps": 10**10}, "its steps is 10000000000"),
        ({"episodes": 10**9}, "its episodes is 1000000000"),
        ({"first": 1}, "its first is 1, but must be true or false"),
        ({"terms": "[true, {}, 1]"}, "its terms is"),
        ({"terms": json.dumps([True, {"W": ["|O", [2]]}])}, "its terms is"),
        ({"trial": "[1, 2, true]"}, "its trial is"),
        ({"settings": 3}, "its settings is 3"),
    ],
)
def test_a_client_refuses_a_bad_order(changes, sentence):
    with pytest.raises(FedQHDError, match=f"the server's message cannot be read: {sentence}"):
        read_order(about(lambda: write_order(ORDER, {}), **changes), training=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"like": json.dumps({"W": ["<f4", [10**6, 10**6]]})}, "named shapes of at most 1073741824 numbers"),
        ({"like": json.dumps({"W": ["<f4", [0, 2]]})}, "its like is"),
        ({"like": json.dumps({str(i): ["<f4", [1]] for i in range(2000)})}, "its like is"),
        ({"weight": 10**12}, "it has 'weight', which is unknown"),
        ({"client": -1}, "its client is -1"),
        ({"fingerprint": "x" * 5000}, "its fingerprint is"),
        ({"fingerprint": "x\n\x1b[2J"}, "its fingerprint is 'x.*a printable text of at most 1000 characters"),
    ],
)
def test_an_introduction_of_the_wrong_form_or_size_is_refused(changes, sentence):
    with pytest.raises(Refused, match=sentence):
        read_introduction(about(introduction, **changes))


@pytest.mark.parametrize(
    "data", [header("(1000000000000,)"), header("(2,)") + bytes(8), header("(-1, -1)") + bytes(8), b"", b"PK\3\4",
             header("(1,)", "|O") + bytes(8)],
)  # fmt: skip
def test_an_array_is_not_made_before_its_numbers_are_there(data):
    assert size_of(sent(data)) is None
    assert size_of(Array(np.zeros((3, 4)))) == 12


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"greedy": [float("nan")]}, "greedy"), ({"greedy": [1.0, 2.0]}, "greedy"), ({"updates": -1}, "updates"),
     ({"updates": 1.5}, "updates"), ({"loss": 1.0}, "loss")],
)  # fmt: skip
def test_an_evaluation_that_is_none_is_refused(change, sentence):
    content = outcome()
    content.metric_records["metrics"].update(change)
    with pytest.raises(Refused, match=sentence):
        read_outcome(content, 1)


def test_an_empty_evaluation_is_one_of_a_client_that_the_server_evaluates():
    assert read_outcome(RecordDict({"metrics": MetricRecord()}), 1) == {}
    with pytest.raises(Refused):
        read_outcome(RecordDict({"about": ConfigRecord()}), 1)


def joining(tmp_path, spoil_introduction, client, **settings):
    """Three nodes of which one changes how it introduces itself; the engine, before they are gathered."""
    c = tiny(tmp_path, env=CORRIDOR, clients=3, **{"setting": "homogeneous", "dims": [16], **settings})
    app = make_client_app(partial(open_site, c, tmp_path / "nodes"))
    grid = Faulty(app, [{"partition-id": i} for i in range(3)])

    def change(i, answer):
        if i == client and answer.metadata.message_type == MessageType.QUERY:
            spoil_introduction(answer.content.config_records["about"])
        return answer

    grid.spoil = change
    _, world = build(c)
    engine = FlowerEngine(
        grid, "run", {}, world.public.fingerprint(), patience=Patience(poll=0.01), one_encoder=True
    )  # fmt: skip
    return c, engine, world


DEVIATIONS = {
    "another shape": (lambda about: about.update(like='{"W": ["<f4", [1, 2]]}'), "parameters of other shapes"),
    "more actions": (lambda about: about.update(like='{"W": ["<f4", [1, 9]]}', fingerprint="own"), "encoder|columns"),
    "another array": (lambda about: about.update(like='{"V": ["<f4", [1, 2]]}'), "parameters of other shapes"),
    "another encoder": (lambda about: about.update(fingerprint="own"), "all need one encoder"),
    "a number beyond": (lambda about: about.update(client=99), "it says that it is client 99, but there are 3"),
    "a number of its own": (lambda about: about.update(weight="1000000000000"), "'weight', which is unknown"),
}


@pytest.mark.parametrize("client", [0, 2])
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_a_single_introduction_that_deviates_is_refused_and_no_reply_of_the_others(tmp_path, caplog, deviation, client):
    change, sentence = DEVIATIONS[deviation]
    c, engine, world = joining(tmp_path, change, client)
    with pytest.raises(FedQHDError, match=f"these had not joined after 0 seconds: {client};"):
        engine.gather(3, limit=0.0)
    assert len([r for r in caplog.messages if "is refused" in r]) == 1
    assert any(part in caplog.text for part in sentence.split("|"))
    assert engine.introductions.keys() == {0, 1, 2} - {client}
    engine.grid.spoil = Faulty.spoil
    context = engine.grid.contexts.pop(1000 + client)
    context.node_id = 3000
    engine.grid.contexts[3000] = context
    server = make_server(c, engine.gather(3, limit=5.0), world.public)
    replies = server.recorded(0, engine.round(None, Quota(1)), Quota(1), 0)
    valid = server.admit(0, 0, replies, world.federation.expects(None))
    assert [r.client for r in valid] == [0, 1, 2]
    assert [r.weight for r in valid] == [1.0] * 3


@pytest.mark.parametrize(("weights", "due"), [("uniform", [1.0] * 3), ("steps", [None] * 3), ([0.5, 0.2, 0.3],) * 2])
def test_weights_are_the_servers_whatever_a_client_claims(tmp_path, weights, due):
    c = tiny(tmp_path, env=CORRIDOR, clients=3, weights=weights)
    _, world = build(c)
    server = make_server(c, [m._replace(weight=1e12) for m in world.members], world.public)
    assert [m.weight for m in server.members] == due
    assert server.longest == (20 if weights == "steps" else 10**7)


def test_invented_steps_are_refused_where_they_are_the_weight(tmp_path, caplog):
    c = tiny(tmp_path, env=CORRIDOR, clients=3, setting="homogeneous", weights="steps")
    clients, world = build(c)
    server = make_server(c, world.members, world.public)
    replies = [client.round(world.federation, None, Quota(1)) for client in clients]
    (episode,) = replies[1].episodes
    replies[1] = replies[1]._replace(episodes=(episode._replace(length=21),), steps=21, weight=21.0)
    assert [r.client for r in server.recorded(0, replies, Quota(1), 0)] == [0, 2]
    assert "its length is 21, but must be a whole number from 0 to 20" in caplog.text


def test_a_bad_order_is_an_error_at_the_client_and_leaves_its_state(tmp_path):
    c = tiny(tmp_path, env=CORRIDOR, clients=2, setting="heterogeneous")
    app = make_client_app(partial(open_site, c, tmp_path / "nodes"))
    grid = InProcessGrid(app, [{"partition-id": i} for i in range(2)])
    absent = []
    engine = FlowerEngine(
        grid, "run", {}, build(c)[1].public.fingerprint(), on_absent=lambda *why: absent.append(why)
    )  # fmt: skip
    engine.gather(2, 5.0)
    engine.round(None, Quota(2))
    for teacher in ({"Q": np.full((40, 2), np.nan)}, {"Q": np.zeros((7, 2))}, {"P": np.zeros((40, 2))}):
        engine.round(teacher, Quota(2), [0])
    assert [kind for _, kind, _ in absent] == ["raised"] * 3
    sentences = ("its Q is not finite", r"its Q is of shape (7, 2), but (40, 2) is expected", "it lacks Q")
    for (_, _, told), sentence in zip(absent, sentences, strict=True):
        assert "the server's teacher cannot be installed: " + sentence in told
    (reply,) = engine.round({"Q": np.zeros((40, 2))}, Quota(2), [0])
    assert reply.episodes[0].episode == 2
