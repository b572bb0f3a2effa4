"""The settings of participation and aggregation, and what a method says of its own: limits and whole sentences."""

from __future__ import annotations

import re

import numpy as np
import pytest

from conftest import TINY
from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.encoders.settings import EncoderSettings
from fedqhd.envs.anchors import AnchorSettings
from fedqhd.envs.public import make_public
from fedqhd.federation import AnchorCompile
from fedqhd.federation.aggregate import CANNOT_PLAY, MEAN
from fedqhd.federation.method import METHODS, LearnerSettings, Method, check_federation, method_of
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings, parse_presence
from fedqhd.federation.wrappers.settings import WRAPPERS
from fedqhd.runs.config import resolve
from worlds import CORRIDOR


def said(sentence):
    return pytest.raises(FedQHDError, match=f"^{re.escape(sentence)}$")


# --- who is present ---


@pytest.mark.parametrize(
    ("spec", "parsed"),
    [
        ("3=10:20", (3, (10, 20))), ("3=10:", (3, (10, 10**9))), ("0=0:0", (0, (0, 0))), ("12=7:7", (12, (7, 7))),
        ("123456789=1:123456789", (123456789, (1, 123456789))),
    ],
)  # fmt: skip
def test_a_presence_is_a_client_and_a_span_of_rounds(spec, parsed):
    assert parse_presence(spec) == parsed


@pytest.mark.parametrize(
    "spec",
    [
        "", "1", "1=", "1=5", "=1:2", "x=1:2", "1=x:", "1=1:x", "-1=0:2", "1=5:3", "1=:3", "1=1:2:3", "1=2=1:3", "1:2",
        "1234567890=1:2", "1=1234567890:", "1=0:1234567890", "1=1.5:3",
    ],
)  # fmt: skip
def test_any_other_presence_is_refused_with_this_sentence(spec):
    with said(
        f"present={spec!r} is not a span of rounds: give CLIENT=FIRST:LAST, e.g. 3=10:20, or 3=10: for a client that "
        "stays to the end"
    ):
        parse_presence(spec)


THREE_ROUNDS = {"episodes": 9, "round_episodes": 4}


@pytest.mark.parametrize(
    "given",
    [
        {"clients": 1}, {"min_clients": 5}, {"min_clients": 2, "participation": 0.4}, {"participation": 0.01},
        {"present": ["4=0:1", "0=3:"]},
        {"clients": 2, "present": ["0=0:0", "1=1:2"], **THREE_ROUNDS}, {"clients": 2, "present": ["0=9:"]},
        {"weights": [0.0, 0.25, 0.25, 0.5, 0.0]}, {"weights": "steps"}, {"aggregate": "own_things:plain_mean"},
        {"weights": [0.2, 0.2, 0.2, 0.2, 0.2000009]}, {"aggregate": "median"},
        {"aggregate": "played", "setting": "heterogeneous", "anchor_source": "teacher"},
    ],
)  # fmt: skip
def test_these_settings_are_possible(given):
    c = resolve(given)
    assert all(c.get(name) == (tuple(v) if isinstance(v, list) else v) for name, v in given.items())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"min_clients": 6}, "min_clients=6 is not possible: only 5 of clients=5 take part in a round"),
        ({"min_clients": 3, "participation": 0.4},
         "min_clients=3 is not possible: only 2 of clients=5 take part in a round"),
        ({"min_clients": 2, "participation": 0.01},
         "min_clients=2 is not possible: only 1 of clients=5 take part in a round"),
        ({"present": ["5=0:"]}, "present=('5=0:',) is not possible: give each of the clients 0 to 4 at most once"),
        ({"present": ["1=0:", "1=5:"]},
         "present=('1=0:', '1=5:') is not possible: give each of the clients 0 to 4 at most once"),
        ({"clients": 2, "present": ["0=0:1", "1=1:1"], **THREE_ROUNDS},
         "present=('0=0:1', '1=1:1') is not possible: no client is present in round 2"),
        ({"clients": 1, "present": ["0=1:"], **THREE_ROUNDS},
         "present=('0=1:',) is not possible: no client is present in round 0"),
        ({"weights": "equal"},
         "weights=equal is not possible: choose uniform, steps, precision, or give one number per client"),
        ({"weights": [0.5, 0.5]}, "weights=(0.5, 0.5) is not possible: give one number per client, 5 in all"),
        ({"clients": 2, "weights": [1.5, -0.5]},
         "weights=(1.5, -0.5) is not possible: they must be at least 0 and sum to 1, not 1"),
        ({"clients": 2, "weights": [0.5, 1.0]},
         "weights=(0.5, 1.0) is not possible: they must be at least 0 and sum to 1, not 1.5"),
        ({"clients": 2, "weights": [0.0, 0.0]},
         "weights=(0.0, 0.0) is not possible: they must be at least 0 and sum to 1, not 0"),
        ({"aggregate": "played"}, f"aggregate=played is not possible: {CANNOT_PLAY}"),
        ({"method": "truncated-fedavg-qhd", "learner": "least-squares", "weights": "precision"},
         "weights=precision is not possible: it needs method=fedqhd and a learner that knows its uncertainty, such as "
         "least-squares"),
        ({"method": "truncated-fedavg-qhd", "learner": "least-squares", "exchange": "statistics"},
         "exchange=statistics is not possible: normal equations need method=fedqhd with learner=least-squares and one "
         "encoder"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_with_this_sentence(given, sentence):
    with said(sentence):
        resolve(given)


# --- what a method says of its own ---


def test_all_settings_that_a_method_runs_with_are_named():
    class Odd(Method):
        supported_settings = ("small", "large")

    def need(holds, name, rule):
        if not holds:
            raise FedQHDError(f"{name}: {rule}")

    with said("setting: method=odd runs with small or large"):
        Odd.check(Config({"method": "odd", "setting": "medium"}), need)
    Odd.check(Config({"method": "odd", "setting": "large"}), need)


@pytest.mark.parametrize(
    ("method", "values", "parts"),
    [
        ("independent-qhd", {}, [LearnerSettings, ParticipationSettings, EncoderSettings, "replay"]),
        ("oracle-qhd", {}, [LearnerSettings, EncoderSettings, "replay"]),
        ("truncated-fedavg-qhd", {"learner": "online"},
         [LearnerSettings, ParticipationSettings, AggregationSettings, *WRAPPERS, EncoderSettings, "online"]),
        ("fedqhd", {"setting": "heterogeneous", "agents": ("qhd", "dqn:8", "qhd")},
         [METHODS.find("fedqhd").Settings, ParticipationSettings, AggregationSettings, *WRAPPERS, AnchorSettings,
          EncoderSettings, "replay", "dqn"]),
    ],
)  # fmt: skip
def test_the_settings_that_matter_to_a_method(method, values, parts):
    values = {"setting": "homogeneous", "learner": "replay", **values}
    due = [LEARNERS.find(part).Settings if isinstance(part, str) else part for part in parts]
    assert METHODS.find(method).parts(values) == due


@pytest.mark.parametrize(
    ("method", "setting", "compiled"),
    [
        ("fedqhd", "heterogeneous", {"lam", "compile"}), ("fedqhd", "homogeneous", set()),
        ("independent-qhd", "homogeneous", set()),
    ],
)  # fmt: skip
def test_settings_of_compilation_matter_only_where_something_is_compiled(method, setting, compiled):
    fields = METHODS.find(method).fields({"setting": setting, "learner": "online"})
    assert fields.keys() & {"lam", "compile"} == compiled
    assert {"eta", "learner", "dims"} <= fields.keys()


def test_the_tables_of_a_file_that_apply_to_a_method():
    values = {"setting": "heterogeneous", "learner": "online", "agents": ("dqn:8", "qhd")}
    assert METHODS.find("fedqhd").table_names(values) == ["heterogeneous", "dqn", "fedqhd"]
    assert METHODS.find("oracle-qhd").table_names(values) == ["heterogeneous", "online", "oracle-qhd"]


def test_the_tuner_tries_other_rounds():
    for given, tried in ((10, 5), (5, 10), (11, 10), (50, 10)):
        assert Method.tuning_variant(Config({"round_episodes": given})) == {"round_episodes": tried}


def test_an_oracle_plays_everywhere_and_any_other_client_in_its_own_environment():
    oracle, client = (method_of(resolve({"method": name, "clients": 3})) for name in ("oracle-qhd", "fedqhd"))
    assert (list(oracle.clients), list(oracle.sites(0))) == ([0], [0, 1, 2])
    assert (list(client.clients), list(client.sites(2))) == ([0, 1, 2], [2])
    assert type(client).name == "fedqhd"
    assert client.config.clients == 3


class Lacking(Learner):
    """A learner that lacks most of what an agent needs."""

    def __init__(self, n, actions, settings, generator):
        self.n, self.actions = n, actions


class Complete(Lacking):
    """A learner that does nothing, and has no values at anchors."""

    def act(self, s):
        return 0

    def observe(self, t): ...

    def load(self, p): ...

    def model(self): ...

    def params(self):
        return {}

    def fingerprint(self):
        return ""


def corridor(**given):
    c = resolve({"env": CORRIDOR, "rollout_steps": 50}, preset="plain", shared={**TINY, **given})
    return method_of(c), make_public(c)


def test_a_method_makes_its_agents_of_its_settings():
    method, public = corridor(method="oracle-qhd", setting="heterogeneous")
    assert method.agent(0, public).encoder.D == 96  # the larger one, since it is alone
    method, public = corridor(setting="heterogeneous", agents=("qhd", "dqn:5"), eta=0.25)
    readout, network = method.agent(2, public), method.agent(1, public)
    assert (readout.encoder.D, readout.encoder.n, readout.W.shape[1]) == (64, 1, 2)
    assert (5, 1) in [v.shape for v in network.params().values()]
    method, public = corridor(learner="test_federation_settings:Complete", method="independent-qhd")
    agent = method.agent(1, public)
    assert (type(agent).__name__, agent.n, agent.actions) == ("Complete", 1, 2)
    assert method.learner(1) == (type(agent), {})
    assert method.rule is MEAN


def test_an_agent_that_does_not_suit_the_run_is_refused_with_this_sentence():
    lacks = "lacks the method {}() of fedqhd.core.protocols.Agent"
    method, public = corridor(learner="test_federation_settings:Lacking", method="independent-qhd")
    with said(f"learner='Lacking' {lacks.format('act')}"):
        method.agent(0, public)
    method, public = corridor(learner="test_federation_settings:Complete", setting="heterogeneous")
    with said(f"learner='Complete' {lacks.format('q')}"):
        method.agent(0, public)
    method, public = corridor(learner="replay")
    with said(
        f"env={CORRIDOR!r} has continuous actions, but learner=replay learns discrete ones: choose another environment "
        "or learner"
    ):
        method.agent(0, public._replace(bounds=np.zeros((2, 2))))


def test_a_method_without_a_federation_says_so():
    with said("method='own:Odd' has no federation(terms, public): define what is exchanged"):
        Method(Config({"method": "own:Odd"})).federation(None, None)


def test_a_federation_that_lacks_a_method_is_refused_with_this_sentence():
    class Mute:
        start = expects = aggregate = install = print
        report = 3

    with said(
        "method='own:Odd' makes a Mute that lacks the method report(): a federation needs start, report, expects, "
        "aggregate, install"
    ):
        check_federation(Mute(), "own:Odd")
    with pytest.raises(FedQHDError, match=r"makes a int that lacks the method start\(\)"):
        check_federation(3, "x")
    check_federation(AnchorCompile(np.zeros((1, 1))), "fedqhd")
