"""Clients behind Flower compute what they would compute anywhere, and no node can stop the others."""

from __future__ import annotations

import re
from functools import partial
from time import monotonic

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, RecordDict
from test_engines import state_of

from conftest import tiny
from fedqhd.agents.client import LocalClient
from fedqhd.core.engine import Trial
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Quota
from fedqhd.deploy.server import known_clients, remember_clients
from fedqhd.engines import LocalEngine
from fedqhd.engines.flower.client import make_client_app
from fedqhd.engines.flower.engine import FlowerEngine
from fedqhd.engines.flower.grid import InProcessGrid, Patience
from fedqhd.engines.flower.records import array_record, payload_of, write_trial
from fedqhd.engines.flower.simulation import SimulationEngine
from fedqhd.engines.flower.strategy import FedQHD
from fedqhd.federation import plan_rounds, run_rounds
from fedqhd.runs.build import build, make_server
from fedqhd.runs.outcome import measure
from fedqhd.runs.simulated import open_site
from worlds import CORRIDOR

SETTINGS = [
    {"setting": "homogeneous"},
    {"setting": "heterogeneous", "clients": 3, "encoder": "complex"},
    {"setting": "heterogeneous", "anchor_source": "teacher", "learner": "least-squares", "weights": "precision"},
    {"setting": "heterogeneous", "anchor_source": "visited", "learner": "online"},
    {"setting": "heterogeneous", "method": "truncated-fedavg-qhd", "weights": "steps"},
    {"exchange": "statistics", "learner": "least-squares"},
    {"method": "independent-qhd"},
    {"setting": "heterogeneous", "uplink": "int8", "encoder": "symbolic"},
    {"setting": "homogeneous", "uplink": "float16", "encoder": "complex"},
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
    server = make_server(config, world.members, world.public)
    history = list(run_rounds(engine, world.federation, rounds, server=server))
    return history, engine.each(state_of)


def same(one, other):
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[k], other[k]) and one[k].dtype == other[k].dtype for k in one)


def assert_same_rounds(local, states, history, engine):
    """The replies, teachers and clients of a run behind a grid are those of a local run."""
    for (_, replies, teacher, _), (_, replies_there, teacher_there, _) in zip(local, history, strict=True):
        assert [r._replace(payload={}, seconds={}) for r in replies] == [
            r._replace(payload={}, seconds={}) for r in replies_there
        ]
        same(teacher, teacher_there)
    for one, other in zip(states, engine.each(state_of), strict=True):
        same(one, other)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_behind_a_grid_clients_compute_what_one_process_does(tmp_path, settings):
    config, rounds = tiny(tmp_path, env=CORRIDOR, **settings), plan_rounds(Quota(6), Quota(4))
    local, states = local_run(config, rounds)
    engine, world = make_engine(tmp_path, config)
    told = []
    engine.on_episode = told.append
    history = list(
        run_rounds(engine, world.federation, rounds, server=make_server(config, world.members, world.public))
    )
    assert told == [e for _, replies, _, _ in local for r in replies for e in r.episodes]
    assert_same_rounds(local, states, history, engine)


BY_STEPS = plan_rounds(Quota(steps=40), Quota(steps=13))
"""Rounds that end in the middle of episodes of up to 20 steps, and in which none may end."""


@pytest.mark.parametrize(
    "settings", [*SETTINGS, {"action_repeat": 3, "learner": "online"}, {"loop": "python"}], ids=str
)
def test_behind_a_grid_clients_go_on_with_their_episodes(tmp_path, settings):
    """Every message makes the client anew, so that it plays its open episode again before it goes on."""
    config = tiny(tmp_path, env=CORRIDOR, steps=40, round_steps=13, **settings)
    local, states = local_run(config, BY_STEPS)
    engine, world = make_engine(tmp_path, config)
    server = make_server(config, world.members, world.public)
    history = list(run_rounds(engine, world.federation, BY_STEPS, server=server))
    assert_same_rounds(local, states, history, engine)
    repeat, sites = config.action_repeat, len(engine.clients[0].envs)
    for k, replies, _, _ in history:
        asked = sites * (13, 13, 13, 1)[k]
        assert all(asked <= r.steps < asked + repeat for r in replies)
    assert not [what for what in server.counts if what.startswith(("refused", "absent"))]


def test_a_run_of_steps_that_began_on_another_engine_goes_on_behind_a_grid(tmp_path):
    """The engine does not know then how much its clients were asked for, but what they have played."""
    config = tiny(tmp_path, env="MountainCar-v0", learner="online", steps=260, round_steps=65)
    rounds = plan_rounds(Quota(steps=260), Quota(steps=65))
    whole, _ = local_run(config, rounds)
    clients, world = build(config)
    local = LocalEngine(clients, world.federation)
    begun = list(run_rounds(local, world.federation, rounds[:3]))
    engine, world = make_engine(tmp_path, config)
    engine.restore(local.state())
    rest = run_rounds(engine, world.federation, rounds, 3, begun[-1].teacher, state=begun[-1].state)
    (last,) = rest
    assert [r.episodes for r in last.replies] == [r.episodes for r in whole[-1][1]]
    assert [e.length for r in last.replies for e in r.episodes] == [200, 200]


def test_flowers_own_loop_takes_rounds_in_which_no_episode_ends(tmp_path):
    config, rounds = tiny(tmp_path, env="MountainCar-v0", learner="online"), [Quota(steps=30)] * 2
    local, _ = local_run(config, rounds)
    engine, world = make_engine(tmp_path, config)
    strategy = FedQHD(engine, world.federation, make_server(config, world.members, world.public), rounds)
    result = strategy.start(engine.grid, ArrayRecord(), num_rounds=len(rounds))
    same(local[-1][2], payload_of(result.arrays))
    assert set(result.train_metrics_clientapp[2]) == {"clients"}


def test_flowers_own_loop_with_our_strategy_gives_the_same_bits(tmp_path):
    config, rounds = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=3), plan_rounds(Quota(6), Quota(4))
    local, states = local_run(config, rounds)
    engine, world = make_engine(tmp_path, config)
    strategy = FedQHD(engine, world.federation, make_server(config, world.members, world.public), rounds)
    result = strategy.start(engine.grid, ArrayRecord(), num_rounds=len(rounds))
    same(local[-1][2], payload_of(result.arrays))
    assert set(result.train_metrics_clientapp) == {1, 2}
    for one, other in zip(states, engine.each(state_of), strict=True):
        same(one, other)


def test_a_round_is_one_message_a_client(tmp_path):
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=3)
    engine, world = make_engine(tmp_path, config)
    introductions = engine.grid.sent
    assert introductions == 3
    list(run_rounds(engine, world.federation, [Quota(1)] * 4))
    assert engine.grid.sent - introductions == 3 * 4 + 3  # and one to install the last teacher


def test_some_clients_take_part(tmp_path):
    engine, _ = make_engine(tmp_path, tiny(tmp_path, env=CORRIDOR, clients=3))
    assert [r.client for r in engine.round(None, Quota(2), [2, 1])] == [1, 2]
    assert [len(r.episodes) for r in engine.round(None, Quota(1))] == [1, 1, 1]


def test_a_server_that_forgot_a_round_finds_its_clients_as_they_were_before_it(tmp_path):
    """As after its death: the checkpoint that it goes on from is a round older than its clients."""
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=3)
    engine, world = make_engine(tmp_path, config)
    _, teacher = world.federation.aggregate({}, engine.round(None, Quota(3)))
    forgetful = {**FlowerEngine.state(engine)}
    first = engine.round(teacher, Quota(3))
    FlowerEngine.restore(engine, forgetful)
    again = engine.round(teacher, Quota(3))
    onwards = engine.round(teacher, Quota(3))
    for one, other in zip(first, again, strict=True):
        assert one.episodes == other.episodes
        same(one.payload, other.payload)
    assert [r.episodes[0].episode for r in onwards] == [6, 6, 6]


class Faulty(InProcessGrid):
    """Some answers are lost, late or not what they were."""

    lost = frozenset()
    spoil = staticmethod(lambda client, answer: answer)

    def client(self, message):
        return self.contexts[message.metadata.src_node_id].node_config["partition-id"]

    def pull_messages(self, message_ids):
        answers = super().pull_messages(message_ids)
        held = [a for a in answers if self.client(a) in self.lost]
        self._replies |= {a.metadata.reply_to_message_id: a for a in held}
        return [self.spoil(self.client(a), a) for a in answers if a not in held]


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """An engine of three clients over a grid that can be made to fail, with its server and federation."""
    monkeypatch.setattr("test_flower.InProcessGrid", Faulty)
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=3, aggregate="mean")
    engine, world = make_engine(tmp_path, config)
    server = make_server(config, world.members, world.public)
    engine.on_absent = server.record_absence
    engine.patience = Patience(quorum=0.5, grace=0.2, poll=0.02)
    return engine, world.federation, server


def spoiled(change):
    """Of the answers, client 1's is changed."""

    def spoil(client, answer):
        if client == 1:
            change(answer.content)
        return answer

    return spoil


def arrays(**named):
    return spoiled(lambda content: content.__setitem__("arrays", array_record(named)))


def about(**entries):
    return spoiled(lambda content: content.config_records["about"].update(entries))


def metrics(**entries):
    named = {name.replace("__", "/").replace("_", "-"): value for name, value in entries.items()}
    return spoiled(lambda content: content.metric_records["metrics"].update(named))


def without_metrics(content):
    del content["metrics"]


def without_a_time(content):
    del content.metric_records["metrics"]["seconds/learning"]


def with_another_step(content):
    content.metric_records["metrics"]["num-examples"] += 1


def that_skip_one(content):
    record = content.metric_records["metrics"]
    record["episodes/episode"] = [0, 2]


NO_EPISODES = {f"episodes__{name}": [] for name in ("client", "episode", "ret", "length", "epsilon")}
Q = np.zeros((40, 2))
FAULTS = {
    "NaN": (arrays(Q=np.full_like(Q, np.nan)), "refused/1/not finite", "client 1.*not finite"),
    "shape": (arrays(Q=Q[:7]), "refused/1/shape", r"client 1.*\(7, 2\), but \(40, 2\)"),
    "names": (arrays(P=Q), "refused/1/names", r"client 1.*'P'.*'Q'"),
    "type": (arrays(Q=Q.astype(complex)), "refused/1/type", "client 1.*complex128"),
    "fingerprint": (about(fingerprint="other"), "refused/1/fingerprint", "client 1.*'other'"),
    "another client": (about(client=2), "absent/1/client", "client 1.*says that it is client 2"),
    "no metrics": (spoiled(without_metrics), "absent/1/unreadable", "client 1.*cannot be read"),
    "a time is missing": (spoiled(without_a_time), "absent/1/unreadable", "client 1.*its seconds/learning is missing"),
    "a list for a count": (metrics(num_examples=[3, 4]), "absent/1/unreadable", r"its num-examples is \[3, 4\], but"),
    "no episodes": (metrics(**NO_EPISODES), "absent/1/unreadable", r"its episodes/client is \[\], but must be"),
    "episodes of another": (metrics(episodes__client=[2, 2]), "absent/1/unreadable", r"\[2, 2\].*number from 1 to 1"),
    "episodes to come": (metrics(episodes__episode=[10**12] * 2), "absent/1/unreadable", "number from 0 to 3"),
    "episodes with a gap": (spoiled(that_skip_one), "absent/1/episodes", "its episodes are not 2 in a row"),
    "a field too many": (metrics(more=1), "absent/1/unreadable", "client 1.*it has 'more', which is unknown"),
    "invented steps": (spoiled(with_another_step), "absent/1/steps", r"counts \d+ steps, but its episodes have \d+"),
    "infinite time": (metrics(cpu=float("inf")), "absent/1/unreadable", "its cpu is inf"),
    "all the weight": (metrics(weight=10**12), "refused/1/weight", "its weight is 1000000000000.0, but should be 1.0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_client_that_fails_is_left_out_by_name_and_reason_and_the_rest_go_on(faulty, caplog, fault):
    engine, federation, server = faulty
    spoil, count, sentence = FAULTS[fault]
    rounds = run_rounds(engine, federation, [Quota(2)] * 3, server=server)
    next(rounds)
    engine.grid.spoil = spoil
    next(rounds)
    assert server.used_weights.keys() == {0, 2}
    assert server.counts[count] == 1
    assert re.search(sentence, caplog.text)
    engine.grid.spoil = Faulty.spoil
    next(rounds)
    assert server.used_weights.keys() == {0, 1, 2}


def test_a_client_that_raises_is_left_out_and_goes_on_from_before_it_did(faulty, caplog, monkeypatch):
    engine, federation, server = faulty
    rounds = run_rounds(engine, federation, [Quota(2)] * 3, server=server)
    next(rounds)
    play = LocalClient.play

    def fall_over(client, *args):
        played = play(client, *args)
        if client.index == 1:
            raise ZeroDivisionError("the robot fell over")
        return played

    with monkeypatch.context() as patch:
        patch.setattr(LocalClient, "play", fall_over)
        next(rounds)
    assert server.used_weights.keys() == {0, 2}
    assert server.counts == {"absent/1/raised": 1}
    assert "client 1 is left out of this round: it raised an error: the robot fell over" in caplog.text
    _, replies, _, _ = next(rounds)
    assert [r.episodes[0].episode for r in replies] == [4, 2, 4]


def test_a_client_that_never_answers_is_not_waited_for(faulty, caplog):
    engine, federation, server = faulty
    rounds = run_rounds(engine, federation, [Quota(2)] * 4, server=server)
    next(rounds)
    engine.grid.lost = {2}
    began = monotonic()
    next(rounds)
    assert 0.2 <= monotonic() - began < 5
    assert server.used_weights.keys() == {0, 1}
    next(rounds)
    assert server.counts == {"absent/2/silent": 1, "absent/2/busy": 1}
    assert "client 2 is left out of this round: it has not answered in time" in caplog.text
    engine.grid.lost = frozenset()
    next(rounds)
    assert server.used_weights.keys() == {0, 1, 2}


def test_a_client_that_died_and_came_back_under_its_old_name_is_soon_asked_again(faulty, caplog):
    """Nodes with keys keep their names, so what they owed before they died would be waited for for ever."""
    engine, federation, server = faulty
    rounds = run_rounds(engine, federation, [Quota(2)] * 4, server=server)
    next(rounds)
    engine.grid.lost = {2}
    next(rounds)
    engine.grid._replies.clear()  # it died with its answer
    engine.grid.lost = frozenset()
    next(rounds)
    assert server.counts == {"absent/2/silent": 1, "absent/2/busy": 1}
    next(rounds)
    assert server.used_weights.keys() == {0, 1, 2}
    assert not engine._mailbox._reminders


def test_a_node_that_is_slow_to_introduce_itself_is_asked_once_and_owes_nothing_then(tmp_path, monkeypatch):
    monkeypatch.setattr("fedqhd.engines.flower.nodes.HELLO", Patience(quorum=0.0, grace=0.05, poll=0.01))
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=2)
    grid = Faulty(make_client_app(partial(open_site, config, tmp_path)), [{"partition-id": i} for i in (0, 1)])
    engine = FlowerEngine(grid, "run", {}, build(config)[1].public.fingerprint())
    grid.lost = {1}
    engine.update_nodes()
    engine.update_nodes()
    assert engine.introductions.keys() == {0}
    assert grid.sent == 2
    grid.lost = frozenset()
    engine.gather(2, 5.0)
    assert grid.sent == 2
    assert not engine._mailbox.open


def test_a_client_that_was_refused_may_come_again_as_another(tmp_path):
    """What a node that is not taken said of itself binds nobody."""
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=1)
    world = build(config)[1].public.fingerprint()
    grid = InProcessGrid(make_client_app(partial(open_site, config, tmp_path)), [{"partition-id": 0}])
    engine = FlowerEngine(grid, "run", {}, "another world")
    engine.update_nodes()
    assert not engine.introductions
    engine.world = world
    grid.contexts[2000] = grid.contexts.pop(1000)
    engine.gather(1, 5.0)
    assert engine.introductions.keys() == {0}


def test_a_node_whose_key_is_another_clients_is_refused(tmp_path, caplog):
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=2)
    app = make_client_app(partial(open_site, config, tmp_path))
    grid = InProcessGrid(app, [{"partition-id": i} for i in (0, 1)])
    engine = FlowerEngine(grid, "run", {}, build(config)[1].public.fingerprint(), nodes={1000: 0, 1001: 0})
    with pytest.raises(FedQHDError, match="of clients=2 these had not joined after 0 seconds: 1"):
        engine.gather(2, 0.0)
    assert "a node is refused: it says that it is client 1, but has the key of another" in caplog.text


def test_below_the_quorum_everyone_is_waited_for_up_to_the_limit(faulty):
    engine, _, server = faulty
    engine.grid.lost = {1, 2}
    engine.patience = Patience(quorum=0.5, grace=0.1, limit=0.6, poll=0.02)
    began = monotonic()
    assert [r.client for r in engine.round(None, Quota(1))] == [0]
    assert monotonic() - began >= 0.6
    assert server.counts == {"absent/1/silent": 1, "absent/2/silent": 1}


def test_a_client_that_comes_back_on_another_node_goes_on_from_its_own_state(faulty):
    engine, federation, server = faulty
    rounds = run_rounds(engine, federation, [Quota(2)] * 3, server=server)
    next(rounds)
    grid = engine.grid
    context = grid.contexts.pop(1001)
    _, replies, _, _ = next(rounds)
    assert [r.client for r in replies] == [0, 2]
    assert server.counts == {"absent/1/away": 1}
    context.node_id = 2001
    grid.contexts[2001] = context
    _, replies, _, _ = next(rounds)
    assert [(r.client, r.episodes[0].episode) for r in replies] == [(0, 4), (1, 2), (2, 4)]


def test_a_node_in_another_world_is_refused_with_both_fingerprints(tmp_path, caplog):
    ours, theirs = (tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", anchors=m) for m in (40, 41))
    world = build(ours)[1].public.fingerprint()
    grid = InProcessGrid(make_client_app(partial(open_site, theirs, tmp_path)), [{"partition-id": 0}])
    engine = FlowerEngine(grid, "run", {}, world)
    with pytest.raises(FedQHDError, match=r"clients=1.*after 0\.3 seconds: 0; start them, or wait longer"):
        engine.gather(1, limit=0.3)
    assert "40 anchors, 2 actions" in caplog.text
    assert "41 anchors, 2 actions" in caplog.text


def test_a_client_may_not_come_back_as_another(faulty, caplog):
    engine, _, _ = faulty
    engine.round(None, Quota(1))
    grid, context = engine.grid, engine.grid.contexts.pop(1001)
    grid.contexts[3001] = Context(1, 3001, {"partition-id": 1}, context.state, {})
    first = engine.introductions[1]
    engine.introductions[1] = first._replace(member=first.member._replace(fingerprint="what it was"))
    with pytest.raises(FedQHDError, match="what it was"):
        engine.round(None, Quota(1))


def test_nobody_takes_the_place_of_a_client_that_is_connected(tmp_path, caplog):
    """A node without a guard of ours before it can say any number. A client that is started again keeps its folder."""
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=2)

    def open_named(context, greeting):
        name = str(context.node_config.get("name", "first"))
        return open_site(config, tmp_path, context, greeting)._replace(name=name)

    grid = InProcessGrid(make_client_app(open_named), [{"partition-id": i} for i in (0, 1)])
    engine = FlowerEngine(grid, "run", {}, build(config)[1].public.fingerprint())
    engine.gather(2, limit=5.0)

    def join(node, **node_config):
        grid.contexts[node] = Context(1, node, {"partition-id": 0, **node_config}, RecordDict(), {})
        engine.update_nodes()

    join(2000, name="second")
    assert engine._node == {0: 1000, 1: 1001}
    assert "client 0 is connected from another place" in caplog.text
    join(2001)
    assert engine._node == {0: 2001, 1: 1001}
    del grid.contexts[2001], grid.contexts[1000]
    join(2002, name="third")  # once the first has left, its number is free
    assert engine._node == {0: 2002, 1: 1001}
    join(2003)
    assert engine._node == {0: 2002, 1: 1001}


def test_a_run_that_resumes_does_not_wait_for_a_client_that_is_gone(tmp_path):
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", clients=3)
    world = build(config)[1].public.fingerprint()
    app = make_client_app(partial(open_site, config, tmp_path))

    def engine(clients):
        grid = InProcessGrid(app, [{"partition-id": i} for i in clients])
        return FlowerEngine(grid, "run", {}, world, patience=Patience(quorum=0.5, grace=0.3, poll=0.02))

    began = engine(range(3))
    members = began.gather(3, limit=5.0)
    remember_clients(tmp_path, began.introductions)
    known = known_clients(tmp_path)
    resumed, since = engine([0, 2]), monotonic()
    assert [m.fingerprint for m in resumed.gather(3, 5.0, known)] == [m.fingerprint for m in members]
    assert monotonic() >= since + 0.3
    assert resumed.orders("train", None, Quota(1)).keys() == {0, 2}
    resumed.grid.contexts[2000] = Context(1, 2000, {"partition-id": 1}, RecordDict(), {})
    resumed.update_nodes()
    assert resumed._node.keys() == {0, 1, 2}
    for clients, told in (([0, 2], {}), ([0], known), ([0, 2], {k: v for k, v in known.items() if k})):
        with pytest.raises(FedQHDError, match=r"these had not joined after 0\.5 seconds"):
            engine(clients).gather(3, 0.5, told)


@pytest.mark.parametrize("text", ["", "{", "3", "[3]", "[{}]", '[{"client": -1}]', "[" * 10**5])
def test_a_damaged_list_of_clients_is_not_used(tmp_path, caplog, text):
    assert known_clients(tmp_path) == {}
    assert not caplog.text
    (tmp_path / "clients.json").write_text(text)
    assert known_clients(tmp_path) == {}
    assert "clients.json is damaged and is not used" in caplog.text


def test_waiting_says_for_how_many(tmp_path, caplog):
    caplog.set_level("INFO")
    config = tiny(tmp_path, env=CORRIDOR, clients=3)
    grid = InProcessGrid(make_client_app(partial(open_site, config, tmp_path)), [{"partition-id": 1}])
    engine = FlowerEngine(grid, "run", {}, build(config)[1].public.fingerprint())
    with pytest.raises(FedQHDError, match=r"of clients=3 these had not joined after 0\.2 seconds: 0, 2"):
        engine.gather(3, limit=0.2)
    assert "waiting for 2 of 3 clients: 0, 2" in caplog.text


def test_a_client_that_would_cut_off_the_rows_of_the_others_is_refused(tmp_path, caplog):
    config = tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", method="truncated-fedavg-qhd", dims=[48, 64])
    app = make_client_app(partial(open_site, config, tmp_path))
    grid = InProcessGrid(app, [{"partition-id": i} for i in (0, 1)])
    engine = FlowerEngine(grid, "run", {}, build(config)[1].public.fingerprint(), least_rows=64)
    with pytest.raises(FedQHDError, match=r"of clients=2 these had not joined after 0\.3 seconds: 0;"):
        engine.gather(2, limit=0.3)
    assert "client 0 does not fit: its W has 48 rows, fewer than the smallest of the server's dims, 64" in caplog.text
    engine.least_rows = 48
    grid.contexts[2000] = grid.contexts.pop(1000)  # its operator starts it again
    engine.gather(2, limit=5.0)


@pytest.mark.parametrize(("uplink", "share"), [("float16", 4), ("int8", 8)])
def test_a_coarse_uplink_is_short_on_the_wire(tmp_path, uplink, share):
    def up(uplink):
        engine, _ = make_engine(tmp_path, tiny(tmp_path, env=CORRIDOR, setting="heterogeneous", uplink=uplink))
        before = engine.grid.bytes["up"]
        engine.round(None, Quota(1))
        return engine.grid.bytes["up"] - before

    numbers = 2 * 40 * 2 * 8
    assert abs(up("full") - up(uplink) - (numbers - numbers / share)) < 100  # the unit and the code's name


def test_a_code_that_is_none_is_unreadable(faulty):
    engine, _, server = faulty
    engine.grid.spoil = about(coded='{"Q": ["<U8", 1.0]}')
    assert [r.client for r in engine.round(None, Quota(1))] == [0, 2]
    assert server.counts == {"absent/1/unreadable": 1}


def test_what_travels_is_what_arrives(rng):
    """Names and their order, types, shapes, NaN, and an empty array; and no pickle, either way."""
    sent = {
        "z": rng.normal(size=(3, 2)).astype(np.float32), "a": rng.normal(size=4) + 1j, "e": np.zeros((0, 2)),
        "n": np.array([np.nan, -0.0]), "s": np.array(3.0), "F": np.asfortranarray(rng.normal(size=(4, 3))),
    }  # fmt: skip
    arrived = payload_of(array_record(sent))
    assert list(arrived) == list(sent)
    assert all(np.array_equal(sent[k], arrived[k], equal_nan=True) and sent[k].dtype == arrived[k].dtype for k in sent)
    with pytest.raises(ValueError, match="pickle"):
        array_record({"x": np.array([object()])})


@pytest.mark.parametrize(
    "settings", [{"setting": "heterogeneous"}, {"learner": "least-squares"}, {"method": "oracle-qhd"}]
)
def test_behind_a_grid_a_trial_gives_the_same_returns_and_leaves_no_trace(tmp_path, settings):
    config, trial = tiny(tmp_path, env=CORRIDOR, **settings), Trial(3, 5, keep=True)
    clients, world = build(config)
    local = LocalEngine(clients, world.federation, measure=partial(measure, config, world.scaler))
    engine, _ = make_engine(tmp_path, config)
    for each in (local, engine):
        (*_, last) = run_rounds(each, world.federation, [Quota(2)] * 2)
    before, exchange = [state_of(client) for client in engine.each(lambda c: c)], engine.exchange
    one, other = local.trial(last.teacher, trial), engine.trial(last.teacher, trial)
    same({str(k): v for k, v in one.items()}, {str(k): v for k, v in other.items()})
    assert engine.exchange == exchange
    for old, new in zip(before, engine.each(state_of), strict=True):
        same(old, new)
    assert len(list((tmp_path / "best/models").glob("*.npz"))) == len(clients)


def test_a_client_that_answers_a_trial_with_nonsense_is_left_out_of_it(tmp_path, monkeypatch, caplog):
    engine, world = make_engine(tmp_path, tiny(tmp_path, env=CORRIDOR, clients=3))
    (*_, last) = run_rounds(engine, world.federation, [Quota(2)])
    monkeypatch.setattr("fedqhd.engines.flower.client.write_trial", lambda r: write_trial(r[:, :1] if r[0, 0] else r))
    assert set(engine.trial(last.teacher, Trial(3, 5, keep=False))) < {0, 1, 2}
    assert "does not take part: it answered with float64 of shape (1, 1) to 3 episodes" in caplog.text
