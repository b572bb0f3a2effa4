"""Whatever a client sends, from the bytes to the files: the run ends, and the honest clients do not notice."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, MessageType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from conftest import interrupt_after, tiny
from fedqhd.core.protocols import Quota
from fedqhd.engines.flower.client import make_client_app
from fedqhd.engines.flower.grid import InProcessGrid
from fedqhd.engines.flower.simulation import SimulationEngine
from fedqhd.engines.flower.strategy import FedQHD
from fedqhd.runs.build import build, make_server
from fedqhd.runs.callback import Callback, Training
from fedqhd.runs.checkpoint import Parties
from fedqhd.runs.run import conduct, train
from fedqhd.runs.simulated import open_site
from mutants import spoil
from worlds import CORRIDOR

HONEST, LIARS = range(2), range(2, 12)


class Hostile(InProcessGrid):
    """The nodes of some clients change what they send, before it is serialised."""

    change = staticmethod(lambda content: None)

    def _sent(self, message, way):
        client = message.metadata.src_node_id - 1000
        trained = message.metadata.message_type == MessageType.TRAIN and message.has_content()
        if way == "up" and client in LIARS and trained:
            self.change(message.content)
        return super()._sent(message, way)


class Corrupt(Hostile):
    """The bytes of some answers are changed on the way, and are read as Flower does: what is no message raises."""

    seed = 0

    def pull_messages(self, message_ids):
        return [self._read(answer) for answer in super().pull_messages(message_ids)]

    def _read(self, answer):
        client = answer.metadata.src_node_id - 1000
        if client not in LIARS or answer.metadata.message_type != MessageType.TRAIN:
            return answer
        rng = np.random.default_rng((self.seed, self.sent, client))
        contents = {name: bytearray(part.deflate()) for name, part in get_all_nested_objects(answer).items()}
        part = contents[sorted(contents)[rng.integers(len(contents))]]
        at = int(rng.integers(len(part)))
        if rng.integers(2):
            part[at] ^= 1 << int(rng.integers(8))
        else:
            del part[at:]
        return inflate_object_from_contents(answer.object_id, {name: bytes(part) for name, part in contents.items()})


class Forged(Hostile):
    """Some nodes answer in the name of the first, so that their answer is taken for the first one's."""

    def _sent(self, message, way):
        message = super()._sent(message, way)
        if way == "up" and message.metadata.src_node_id - 1000 in LIARS:
            message.metadata.__dict__["_reply_to_message_id"] = self.first
        elif way == "down" and message.metadata.dst_node_id == 1000:
            self.first = message.metadata.message_id
        return message


class Seen(Callback):
    """Remembers whose replies made each teacher, and which episodes were told."""

    def __init__(self, server):
        self.server, self.used, self.told = server, [], []

    def on_round(self, training, replies):
        self.used.append(set(self.server.used_weights))

    def on_episode(self, training, episode):
        self.told.append(episode)


def settings_of(folder, clients, rounds, **settings):
    settings = {"setting": "homogeneous", "learner": "online", "dims": [16], "aggregate": "mean", **settings}
    return tiny(folder, env=CORRIDOR, clients=clients, episodes=rounds, round_episodes=1, eval_episodes=1, **settings)


def run(c, change, resume=False, grid=Hostile):
    """Train clients behind a hostile grid, to the files of a run; its server and what a callback saw."""
    clients, world = build(c)
    nodes = c.folder / "nodes"
    grid = grid(make_client_app(partial(open_site, c, nodes)), [{"partition-id": i} for i in range(len(clients))])
    grid.change = change
    server = make_server(c, world.members, world.public)
    seen = Seen(server)
    training = Training(c, [seen])
    engine = SimulationEngine(
        grid, clients, nodes, "run", world.public.fingerprint(), on_absent=server.record_absence,
        on_episode=training.tell_episode,
    )  # fmt: skip
    try:
        conduct(training, Parties(engine, server), world, resume)
    finally:
        engine.close()
    return server, seen


def lines_of(folder, name):
    """The lines of a file in strict JSON, which has no NaN and no Infinity."""

    def refuse(constant):
        raise ValueError(constant)

    return [json.loads(line, parse_constant=refuse) for line in (folder / name).read_text().splitlines()]


def check_files(folder, rounds, server):
    """Every line is about a round and an episode that there were, once, and agrees with the counts."""
    rows = lines_of(folder, "metrics.jsonl")
    seen = [(row["client"], row["episode"]) for row in rows]
    assert len(seen) == len(set(seen))
    for row in rows:
        assert row.keys() == {"round", "client", "episode", "return", "length", "epsilon"}
        assert row["client"] in (*HONEST, *LIARS)
        # The state of a client goes on though its reply is refused, and so do the numbers of its episodes.
        assert row["episode"] == row["round"]
        assert -2.1 <= row["return"] <= 1.0
        assert 1 <= row["length"] <= 20
    lines = lines_of(folder, "rounds.jsonl")
    assert [line["round"] for line in lines] == list(range(rounds))
    lies = [len(LIARS) * (k + 1) for k in range(rounds)]
    assert [line["refused"] + line.get("absent", 0) for line in lines] == lies
    assert sum(server.counts.values()) == lies[-1]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["episodes"] == rounds
    assert np.isfinite(summary["final_return"])


def check_honest(folder, reference, rounds, **settings):
    """The honest clients have the numbers of a federation without the others, to the bit."""
    train(settings_of(reference, len(HONEST), rounds, **settings))
    rows = [row for row in lines_of(folder, "metrics.jsonl") if row["client"] in HONEST]
    assert rows == lines_of(reference, "metrics.jsonl")


def fuzz(tmp_path, rounds, seed, **settings):
    c = settings_of(tmp_path / "fuzzed", len(HONEST) + len(LIARS), rounds, **settings)
    rng, labels = np.random.default_rng(seed), []
    server, seen = run(c, lambda content: labels.append(spoil(rng, content)))
    for k, used in enumerate(seen.used):
        done = labels[k * len(LIARS) : (k + 1) * len(LIARS)]
        assert used == set(HONEST), [done[i - LIARS[0]] for i in used & set(LIARS)]
    check_files(c.folder, rounds, server)
    check_honest(c.folder, tmp_path / "reference", rounds, **settings)
    rows = lines_of(c.folder, "metrics.jsonl")
    assert {(e.client, e.episode, e.ret) for e in seen.told} == {(r["client"], r["episode"], r["return"]) for r in rows}
    return labels


def test_clients_that_send_anything_are_left_out_and_the_numbers_of_the_others_are_the_same(tmp_path):
    labels = fuzz(tmp_path, 50, 0)
    assert len(set(labels)) > 80


def test_the_same_clients_count_if_they_send_what_they_should(tmp_path):
    """Negative control of the fuzzer."""
    server, seen = run(settings_of(tmp_path, len(HONEST) + len(LIARS), 2), lambda content: None)
    assert seen.used == [{*HONEST, *LIARS}] * 2
    assert not server.counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"setting": "heterogeneous", "uplink": "int8"}, {"weights": "steps"}])
def test_of_thousands_of_messages_with_one_thing_wrong_none_counts_and_none_stops_the_run(tmp_path, seed, settings):
    fuzz(tmp_path, 80, seed, **settings)


def test_a_run_of_which_most_clients_send_anything_resumes(tmp_path, monkeypatch):
    rounds, rng = 8, np.random.default_rng(5)
    c = settings_of(tmp_path / "fuzzed", len(HONEST) + len(LIARS), rounds)

    def change(content):
        spoil(rng, content)

    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            run(c, change)
    server, _ = run(c, change, resume=True)
    check_files(c.folder, rounds, server)
    check_honest(c.folder, tmp_path / "reference", rounds)


def test_a_run_that_began_in_one_process_resumes_behind_a_grid(tmp_path, monkeypatch):
    """The engine behind a grid counts the episodes that it asks for; those of another engine count, too."""
    c = settings_of(tmp_path / "run", len(HONEST), 6)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(c)
    server, _ = run(c, lambda content: None, resume=True)
    assert not server.counts
    check_honest(c.folder, tmp_path / "reference", 6)


def test_bytes_that_are_no_message_do_not_stop_the_run_nor_lose_the_answers_of_others(tmp_path, caplog):
    rounds = 12
    c = settings_of(tmp_path, len(HONEST) + len(LIARS), rounds)
    server, seen = run(c, lambda content: None, grid=Corrupt)
    assert all(used >= set(HONEST) for used in seen.used)
    assert "an answer cannot be read" in caplog.text
    assert sum(server.counts.values()) > 50
    rows = lines_of(tmp_path, "metrics.jsonl")
    assert len([row for row in rows if row["client"] in HONEST]) == rounds * len(HONEST)
    assert all(row["client"] < c.clients and row["episode"] == row["round"] for row in rows)


def test_an_answer_counts_for_the_client_that_was_asked_whatever_it_says(tmp_path):
    server, seen = run(settings_of(tmp_path, len(HONEST) + len(LIARS), 2), lambda content: None, grid=Forged)
    assert seen.used == [{*HONEST, *LIARS}] * 2
    assert not server.counts


class Impostor(InProcessGrid):
    """The last node says in every way that it can that its answer is the first one's, and is read last."""

    last = 1002

    def _sent(self, message, way):
        if way == "up" and message.metadata.src_node_id == self.last and message.has_content():
            if message.metadata.message_type == MessageType.TRAIN:
                message.content["about"]["client"] = 0
                message.content["metrics"]["episodes/client"] = [0]
                message.content["arrays"]["W"] = Array(1e6 + message.content["arrays"]["W"].numpy())
        elif way == "down" and message.metadata.dst_node_id == 1000:
            self.first = message.metadata.message_id
        return super()._sent(message, way)

    def pull_messages(self, message_ids):
        answers = sorted(super().pull_messages(message_ids), key=lambda answer: answer.metadata.src_node_id)
        for answer in answers:
            if answer.metadata.src_node_id == self.last:
                answer.metadata.__dict__.update(_reply_to_message_id=self.first, _src_node_id=1000)
        return answers


def test_in_flowers_own_loop_no_client_can_answer_for_another(tmp_path):
    clients, world = build(settings_of(tmp_path, 3, 2))
    app = make_client_app(partial(open_site, settings_of(tmp_path, 3, 2), tmp_path / "nodes"))
    grid = Impostor(app, [{"partition-id": i} for i in range(3)])
    server = make_server(settings_of(tmp_path, 3, 2), world.members, world.public)
    engine = SimulationEngine(
        grid, clients, tmp_path / "nodes", "run", world.public.fingerprint(), on_absent=server.record_absence
    )
    result = FedQHD(engine, world.federation, server, [Quota(1)] * 2).start(grid, ArrayRecord(), num_rounds=2)
    assert np.abs(result.arrays["W"].numpy()).max() < 100
    assert server.used_weights.keys() == {0, 1}
    assert server.counts == {"absent/2/unreadable": 2}
