"""Federation: the identities that make it closed-form, and who may average what."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import DENSE, by_hand
from fedqhd.agents import ReplayQHD
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Quota, Reply
from fedqhd.encoders import ENCODERS, RandomFourier
from fedqhd.federation import (
    RULES,
    AnchorCompile,
    ParameterAverage,
    Participant,
    Privacy,
    Private,
    Rounded,
    TeacherAnchors,
    Terms,
    VisitedAnchors,
    choose,
    plan_rounds,
    run_rounds,
    unwrapped,
    weighted_mean,
)
from fedqhd.federation.methods.distilled_feddqn import Distilled
from fedqhd.federation.methods.independent_qhd import Independent
from fedqhd.federation.methods.truncated_fedavg_qhd import Truncated
from fedqhd.federation.validate import check_teacher


class Site:
    """A client of which only the agent and the states it met matter here."""

    def __init__(self, index, agent, states=None):
        self.index, self.agent, self.states, self.episodes, self.open_steps = index, agent, states, 0, 0

    def visited(self, k):
        return self.states[:k]


def make_site(index, encoder, rng, **settings):
    agent = ReplayQHD(encoder, 3, by_hand("replay", **settings), np.random.default_rng(index))
    W = rng.normal(size=agent.W.shape)
    agent.load({"W": (W + 1j * rng.normal(size=W.shape) if agent.W.dtype == np.complex64 else W).astype(agent.W.dtype)})
    return Site(index, agent, rng.normal(size=(50, 4)).astype(np.float32))


def terms(agents):
    return Terms.of([Participant(a.fingerprint(), like=a.params()) for a in agents])


def reply(site, federation, weight=1.0, teacher=None):
    episodes = (Episode(0, 0, 1.0, 1, 1.0),)
    return Reply(site.index, federation.report(site, teacher), weight, 1, episodes, site.agent.fingerprint(), {})


def exchange(federation, sites, weights=None):
    """The first exchange; its teacher."""
    return next(exchanges(federation, sites, weights))


def exchanges(federation, sites, weights=None):
    """The teacher of one exchange after the other, when it is installed."""
    state, teacher = federation.start(), None
    while True:
        pi = weights or [1.0] * len(sites)
        replies = [reply(s, federation, w, teacher) for s, w in zip(sites, pi, strict=True)]
        state, teacher = federation.aggregate(state, replies)
        for site in sites:
            federation.install(site, teacher)
        yield teacher


@pytest.mark.parametrize("kind", DENSE)
def test_average_of_weights_is_average_of_values(kind, rng):
    """sum pi_i Q_i = Q of sum pi_i W_i, at every state: Algorithm 1 is exact."""
    encoder = ENCODERS[kind].sample(4, 150, 1.0, rng)
    sites, pi = [make_site(i, encoder, rng) for i in range(3)], [0.5, 0.2, 0.3]
    s = rng.normal(size=(60, 4))
    expected = sum(p * c.agent.q(s) for p, c in zip(pi, sites, strict=True))
    exchange(ParameterAverage(), sites, pi)
    for site in sites:
        # W is float32: 150 products of rounding 6e-8.
        np.testing.assert_allclose(site.agent.q(s), expected, atol=1e-5)
        np.testing.assert_array_equal(site.agent.W_target, site.agent.W)


@pytest.mark.parametrize("mode", ["overwrite", "warm-start"])
@pytest.mark.parametrize("kind", ["fourier", "complex"])
def test_algorithm_2_with_a_full_rank_shared_encoder_is_algorithm_1(kind, mode, rng):
    encoder = ENCODERS[kind].sample(4, 20, 0.7, rng)
    anchors = rng.uniform(-3, 3, (400, 4)).astype(np.float32)
    one = [make_site(i, encoder, np.random.default_rng(i), lam=1e-9, compile=mode) for i in range(3)]
    two = [make_site(i, encoder, np.random.default_rng(i), lam=1e-9, compile=mode) for i in range(3)]
    exchange(ParameterAverage(), one)
    exchange(AnchorCompile(anchors), two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(b.agent.W, a.agent.W, atol=1e-5)


def test_algorithm_2_with_a_rank_deficient_shared_encoder_is_not_algorithm_1(rng):
    """Negative control, and the reason why equal fingerprints take Algorithm 1."""
    encoder = RandomFourier.sample(4, 200, 0.7, rng)
    anchors = rng.uniform(-3, 3, (50, 4)).astype(np.float32)
    one = [make_site(i, encoder, np.random.default_rng(i), compile="overwrite") for i in range(3)]
    two = [make_site(i, encoder, np.random.default_rng(i), compile="overwrite") for i in range(3)]
    exchange(ParameterAverage(), one)
    exchange(AnchorCompile(anchors), two)
    assert np.linalg.norm(two[0].agent.W - one[0].agent.W) > 0.3 * np.linalg.norm(one[0].agent.W)


def test_different_encoders_agree_on_the_anchors_after_an_exchange(rng):
    sites = [make_site(i, RandomFourier.sample(4, D, 1.0, rng), rng, lam=1e-8) for i, D in enumerate([300, 500, 900])]
    anchors = rng.normal(size=(40, 4)).astype(np.float32)
    apart = np.abs(sites[0].agent.q(anchors) - sites[1].agent.q(anchors)).max()
    teacher = exchange(AnchorCompile(anchors), sites)
    for site in sites:
        assert np.abs(site.agent.q(anchors) - teacher["Q"]).max() < 1e-3 * apart


def test_equal_fingerprints_take_algorithm_1(rng):
    anchors = AnchorCompile(np.zeros((5, 4), np.float32))
    one, other = (RandomFourier.sample(4, 20, 1.0, rng) for _ in range(2))
    agents = [make_site(i, encoder, rng).agent for i, encoder in enumerate((one, one, other))]
    assert isinstance(choose(terms(agents[:2]), anchors), ParameterAverage)
    assert isinstance(choose(terms(agents[:1]), anchors), ParameterAverage)
    assert choose(terms(agents), anchors) is anchors


def test_different_encoders_cannot_average_weights(rng):
    sites = [make_site(i, RandomFourier.sample(4, 20, 1.0, rng), rng) for i in range(2)]
    with pytest.raises(FedQHDError, match="encoders differ"):
        exchange(ParameterAverage(), sites)


def test_visited_states_become_anchors_and_then_it_is_algorithm_2(rng):
    sites = [make_site(i, RandomFourier.sample(4, 100, 1.0, rng), rng) for i in range(3)]
    federation = VisitedAnchors(40, 3, 4)
    before = [s.agent.W.copy() for s in sites]
    rounds = exchanges(federation, sites)
    first = next(rounds)
    assert set(first) == {"anchors"}
    assert first["anchors"].shape == (42, 4)  # 14 of each
    for site, W in zip(sites, before, strict=True):
        np.testing.assert_array_equal(site.agent.W, W)
    plain = [make_site(i, s.agent.encoder, rng) for i, s in enumerate(sites)]
    for p, s in zip(plain, sites, strict=True):
        p.agent.load(s.agent.params())
    second = next(rounds)
    exchange(AnchorCompile(first["anchors"]), plain)
    assert set(second) == {"anchors", "Q"}
    for p, s in zip(plain, sites, strict=True):
        np.testing.assert_array_equal(p.agent.W, s.agent.W)


def test_no_client_gets_more_than_its_share_of_the_anchors(rng):
    federation = VisitedAnchors(40, 3, 4)
    replies = [Reply(i, {"states": np.full((10 ** (i + 1), 4), i)}, 1.0, 1, (), "", {}) for i in range(3)]
    _, teacher = federation.aggregate({}, replies)
    assert np.bincount(teacher["anchors"][:, 0].astype(int)).tolist() == [10, 14, 14]


def test_anchors_that_follow_the_teacher_are_compiled_where_they_were_asked_for(rng):
    """One exchange is Algorithm 2 at the present anchors; the next is about those that the teacher's policy met."""
    sites = [make_site(i, RandomFourier.sample(4, 100, 1.0, rng), rng) for i in range(3)]
    plain = [make_site(i, s.agent.encoder, rng) for i, s in enumerate(sites)]
    here, there = rng.normal(size=(2, 40, 4)).astype(np.float32)
    asked = []

    def rollout(anchors, Q, episodes):
        asked.append((anchors, Q, episodes))
        return there

    rounds = exchanges(TeacherAnchors(AnchorCompile(here), rollout), sites)
    for anchors in (here, there):
        for p, s in zip(plain, sites, strict=True):
            p.agent.load(s.agent.params())
        teacher = next(rounds)
        exchange(AnchorCompile(anchors), plain)
        assert asked[-1][0] is anchors
        assert asked[-1][1] is teacher["Q"]
        for p, s in zip(plain, sites, strict=True):
            np.testing.assert_array_equal(p.agent.W, s.agent.W)


def test_rollouts_differ_in_rounds_of_steps_in_which_no_episode_ends():
    """The number that seeds a rollout is that of the episodes played or, if none ended, one more than the last time."""
    here, asked = np.zeros((2, 4)), []

    def rollout(anchors, Q, episodes):
        asked.append(episodes)
        return anchors

    federation = TeacherAnchors(AnchorCompile(here), rollout)
    state = federation.start()
    for ended in ((), (), (0, 1), (), (2,)):
        records = tuple(Episode(0, k, 0.0, 1, 1.0) for k in ended)
        reply = Reply(0, {"Q": np.zeros((2, 2))}, 1.0, 9, records, "", {})
        state, _ = federation.aggregate(state, [reply])
    assert asked == [1, 2, 2, 3, 3]


def make_federations(rng):
    """One of each kind, of three clients with values at 40 anchors or with weights of one shape."""
    anchors = rng.normal(size=(40, 4)).astype(np.float32)
    like = {"W": np.zeros((30, 3), np.float32)}

    def rollout(before, Q, episodes):
        return before + np.float32(0.1)

    plain = AnchorCompile(anchors)
    return {
        "independent": Independent(), "average": ParameterAverage(like), "truncated": Truncated(like),
        "anchors": plain, "visited": VisitedAnchors(40, 3, 4), "teacher": TeacherAnchors(plain, rollout),
        "distilled": Distilled(anchors, temperature=0.5),
        "median": AnchorCompile(anchors, combine=RULES["median"].combine),
        "private": Private(plain, Privacy(1.0, 1.0, 7)), "rounded": Rounded(TeacherAnchors(plain, rollout), "int8"),
    }  # fmt: skip


def flat(arrays):
    return {k: (v.dtype, v.shape, v.tobytes()) for k, v in (arrays or {}).items()}


def inside(thing):
    """Everything that an object holds, to the bit."""
    if isinstance(thing, np.ndarray):
        return thing.dtype, thing.shape, thing.tobytes()
    if isinstance(thing, dict):
        return {k: inside(v) for k, v in thing.items()}
    ours = type(thing).__module__.startswith("fedqhd.federation") and hasattr(thing, "__dict__")
    return inside(vars(thing)) if ours else repr(thing)


@pytest.mark.parametrize("kind", make_federations(np.random.default_rng(0)))
def test_a_federation_keeps_nothing_and_aggregates_the_same_twice(kind, rng):
    """Three rounds, in each of which the server aggregates twice and a second federation takes over on the way."""
    encoder = RandomFourier.sample(4, 30, 1.0, rng)
    sites = [make_site(i, encoder, rng) for i in range(3)]
    federation, other = (make_federations(np.random.default_rng(0))[kind] for _ in range(2))
    before, state, teacher = inside(federation), federation.start(), None
    for _ in range(3):
        replies = [reply(s, federation, teacher=teacher) for s in sites]
        given = flat(state), [flat(r.payload) for r in replies]
        made = federation.aggregate(state, replies)
        again, elsewhere = federation.aggregate(state, replies), other.aggregate(state, replies)
        assert [flat(x) for x in made] == [flat(x) for x in again] == [flat(x) for x in elsewhere]
        assert (flat(state), [flat(r.payload) for r in replies]) == given
        state, teacher = made
        for site in sites:
            federation.install(site, teacher)
        assert inside(federation) == before


def mean_of(values, weights):
    return weighted_mean(
        [Reply(i, {"Q": v}, w, 1, (), "", {}) for i, (v, w) in enumerate(zip(values, weights, strict=True))], "Q"
    )


def test_weighted_mean_by_hand_and_in_any_order():
    values = [np.array([1.0, 2.0]), np.array([3.0, 6.0])]
    np.testing.assert_array_equal(mean_of(values, [1.0, 3.0]), [2.5, 5.0])
    replies = [Reply(i, {"Q": np.array([0.1 * (i + 1) ** 9])}, 1.0, 1, (), "", {}) for i in range(7)]
    assert weighted_mean(replies, "Q") == weighted_mean(replies[::-1], "Q")  # to the bit


def test_aggregation_leaves_its_inputs_alone():
    values = [np.array([1.0, 2.0]), np.array([3.0, 6.0])]
    copies = [v.copy() for v in values]
    mean_of(values, [1.0, 1.0])
    for v, c in zip(values, copies, strict=True):
        np.testing.assert_array_equal(v, c)


@pytest.mark.parametrize(
    ("values", "weights", "says"),
    [
        ([], [], "no client replied"),
        ([np.ones(2), np.ones(3)], [1, 1], r"client 1 sent Q of shape \(3,\)"),
        ([np.ones(2), np.array([1, np.nan])], [1, 1], "client 1 sent a Q that is not finite"),
        ([np.ones(2), np.ones(2)], [0, 0], "not all 0"),
        ([np.ones(2), np.ones(2)], [2, -1], "at least 0"),
    ],
)
def test_what_cannot_be_averaged_is_refused(values, weights, says):
    with pytest.raises(FedQHDError, match=says):
        mean_of(values, weights)


def test_plan_rounds():
    assert plan_rounds(Quota(600), Quota(50)) == [Quota(50)] * 12
    assert plan_rounds(Quota(7), Quota(3)) == [Quota(3), Quota(3), Quota(1)]
    assert plan_rounds(Quota(2), Quota(5)) == [Quota(2)]
    assert plan_rounds(Quota(steps=7), Quota(steps=3)) == [Quota(steps=3), Quota(steps=3), Quota(steps=1)]
    assert plan_rounds(Quota(steps=6), Quota(steps=3)) == [Quota(steps=3)] * 2


def test_the_loop_hands_each_teacher_to_the_next_round():
    class Recorder:
        def __init__(self):
            self.seen = []

        def round(self, teacher, quota, clients):
            self.seen.append((None if teacher is None else int(teacher["Q"][0, 0]), quota.episodes))
            return [Reply(0, {"Q": np.array([[float(len(self.seen))]])}, 1.0, 1, (), "", {})]

        def finish(self, teacher):
            self.seen.append(("finish", int(teacher["Q"][0, 0])))

        def close(self): ...

    engine = Recorder()
    rounds = list(run_rounds(engine, AnchorCompile(np.zeros((1, 1))), [Quota(5), Quota(5), Quota(2)]))
    assert [r.k for r in rounds] == [0, 1, 2]
    assert engine.seen == [(None, 5), (1, 5), (2, 2), ("finish", 3)]


class Momentum(AnchorCompile):
    """A teacher that goes on in the direction of the last rounds: the server has to remember a velocity."""

    def aggregate(self, state, replies):
        _, made = super().aggregate(state, replies)
        velocity = 0.5 * state.get("velocity", 0.0) + made["Q"]
        return {"velocity": velocity}, {"Q": made["Q"] + velocity}


class Echo:
    """An engine of one client, whose values are the teacher's and the number of the round."""

    def __init__(self, k=0):
        self.k = k

    def round(self, teacher, quota, clients):
        self.k += 1
        return [
            Reply(0, {"Q": np.array([[self.k + (0.0 if teacher is None else teacher["Q"][0, 0])]])}, 1.0, 1, (), "", {})
        ]

    def finish(self, teacher): ...


def test_what_the_server_remembers_is_handed_from_round_to_round():
    """By hand: values 1, then 2 + 2, ...; a run that goes on with the state gives what one without a break gives."""
    federation = Momentum(np.zeros((1, 1)))
    whole = list(run_rounds(Echo(), federation, [Quota(1)] * 4))
    assert [float(r.teacher["Q"][0, 0]) for r in whole[:2]] == [1 + 1, 4 + (0.5 + 4)]
    second = whole[1]
    rest = list(run_rounds(Echo(2), federation, [Quota(1)] * 4, 2, second.teacher, state=second.state))
    assert [r.teacher["Q"] for r in rest] == [r.teacher["Q"] for r in whole[2:]]
    forgotten = list(run_rounds(Echo(2), federation, [Quota(1)] * 4, 2, second.teacher))
    assert forgotten[0].teacher["Q"] != whole[2].teacher["Q"]


def spoilt(teacher, name):
    """Teachers that differ from a good one in one array."""
    v = teacher[name]
    yield {k: a for k, a in teacher.items() if k != name}
    for other in (np.full_like(v, np.nan), v[:, :1], v[..., None], v.astype(complex), v.astype(str), v.astype(">f8")):
        yield {**teacher, name: other}


@pytest.mark.parametrize("kind", make_federations(np.random.default_rng(0)))
def test_a_client_installs_what_its_federation_teaches_and_nothing_else(kind, rng):
    encoder = RandomFourier.sample(4, 30, 1.0, rng)
    sites = [make_site(i, encoder, rng) for i in range(3)]
    federation = make_federations(np.random.default_rng(0))[kind]
    for _, teacher in zip(range(3), exchanges(federation, sites), strict=False):
        check_teacher(unwrapped(federation), teacher)
        for name in teacher:
            for bad in spoilt(teacher, name):
                # With an unknown number of actions, Q of one action is fine, and the first of its teachers has no Q.
                narrow = name in bad and name in ("Q", "p") and bad[name].shape[1:] == (1,)
                if not narrow and not (kind == "visited" and "Q" not in bad and "anchors" in bad):
                    with pytest.raises(FedQHDError, match="the server's teacher cannot be installed: "):
                        check_teacher(unwrapped(federation), bad)
