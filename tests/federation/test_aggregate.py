"""What the server makes of replies: rules by hand, what they withstand, and the attacks themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Episode, Expected, Quota, Reply
from fedqhd.federation import ATTACKS, FIXED, RULES, Attacked, Server, rule_of, weighted_mean
from fedqhd.federation.location import geometric_median, multi_krum, near_the_centre, trimmed_mean, weiszfeld
from fedqhd.federation.wrappers.attacks import LITTLE, Scene
from fedqhd.runs.config import FIELDS


def replies_of(values, weights=None, name="Q"):
    episodes = (Episode(0, 3, 1.0, 1, 1.0),)
    weights = weights or [1.0] * len(values)
    return [Reply(i, {name: v}, w, 1, episodes, "", {}) for i, (v, w) in enumerate(zip(values, weights, strict=True))]


def honest(rng, N=5, m=50, A=2, spread=0.1):
    """Clients that agree on Q up to a spread; values are ten times the differences between actions."""
    Q = 20 + 5 * rng.normal(size=(m, 1)) + rng.normal(size=(m, A))
    return [Q + spread * rng.normal(size=(m, A)) for _ in range(N)]


def teacher(rule, replies):
    """As a run makes it: some left out, the rest combined."""
    server = Server(rule=rule_of(rule))
    believed = server.select(0, replies, {"Q": Expected((None, None), "f")})
    return server.rule.combine(believed, "Q")


def test_a_rule_is_found_by_its_name_or_refused():
    assert all(rule_of(name) is rule and rule.name == name for name, rule in RULES.items())
    assert RULES["auto"].combine is weighted_mean  # once some are left out, it is the mean of the others
    with pytest.raises(FedQHDError, match=r"aggregate=.medain. is unknown .did you mean .median."):
        rule_of("medain")


def test_who_counts_is_judged_by_what_clients_vote_on():
    """The fifth client claims a precision like no other, which nobody votes on, and agrees about Q."""
    Q = np.random.default_rng(0).normal(size=(5, 4, 2))
    replies = [Reply(i, {"Q": q, "precision": 10.0 ** (9 * (i == 4)) + q}, 1.0, 1, (), "", {}) for i, q in enumerate(Q)]
    votes = {"Q": Expected((4, 2), "f"), "precision": Expected((4, 2), "f", votes=False)}
    assert rule_of("auto").accepted(replies, votes) == [True] * 5
    assert rule_of("auto").accepted(replies, None) == [True] * 4 + [False]
    assert rule_of("mean").accepted(replies, None) == [True] * 5


def test_the_settings_name_what_there_is():
    assert FIELDS["aggregate"].metadata["choices"] == tuple(RULES)
    assert FIELDS["attack"].metadata["choices"] == ("none", *ATTACKS)


def test_rules_by_hand():
    """Decoys at either end; the mean of them all is 26."""
    replies = replies_of([np.array([[x]]) for x in (1.0, 2.0, 3.0, 24.0, 100.0)])
    assert teacher("mean", replies) == 26.0
    assert teacher("median", replies) == 3.0
    assert teacher("trimmed-mean", replies) == (2 + 3 + 24) / 3
    assert teacher("geometric-median", replies) == pytest.approx(3.0, abs=1e-3)  # in one dimension it is the median
    # Krum, f = 1: each is scored by its 2 nearest; 100 is the one to go.
    np.testing.assert_array_equal(
        RULES["multi-krum"].select([np.array([[1.0], [2], [3], [24], [100]])]), [1, 1, 1, 1, 0]
    )


def test_the_geometric_median_of_a_triangle_is_fermats_point():
    """Equilateral: the centroid. With an angle of more than 120 degrees: that corner."""
    corner = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    np.testing.assert_allclose(geometric_median(corner), [0.5, np.sqrt(3) / 6], atol=1e-6)
    np.testing.assert_allclose(geometric_median(np.array([[-1.0, 0.1], [0, 0], [1, 0.1]])), [0, 0], atol=1e-3)


@pytest.mark.parametrize("N", [5, 50])
def test_the_geometric_median_is_the_same_with_and_without_the_gram_matrix(N):
    P = np.random.default_rng(N).normal(size=(N, 8))
    u, distances = weiszfeld(P)
    wider = np.hstack([P, np.zeros((N, N))])  # more coordinates than clients, so that the Gram matrix is formed
    np.testing.assert_allclose(weiszfeld(wider)[0], u, atol=1e-9)
    np.testing.assert_allclose(distances, np.linalg.norm(P - u @ P, axis=1), atol=1e-9)


def test_trimming_cuts_a_fifth_at_either_end_and_never_everything():
    assert trimmed_mean(np.arange(10.0)[:, None] ** 2) == np.mean(np.arange(2, 8.0) ** 2)
    for N in (1, 2, 3):
        assert trimmed_mean(np.full((N, 1), 7.0)) == 7.0


def test_auto_is_the_mean_to_the_bit_where_all_agree_within_reason(rng):
    for N in (1, 2, 3, 5, 20):
        values = replies_of(honest(rng, N), weights=[1.0 + i for i in range(N)])
        np.testing.assert_array_equal(teacher("auto", values), weighted_mean(values, "Q"))


def test_auto_keeps_everyone_while_most_have_learned_nothing(rng):
    """With rare rewards the first who finds one must be heard: all others still say zero."""
    values = [np.zeros((30, 2))] * 4 + [rng.normal(size=(30, 2))]
    assert RULES["auto"].select([np.stack(values)]).all()


def test_auto_believes_no_one_less_for_knowing_more_of_values_but_for_another_policy(rng):
    """Off by nine median distances in V: kept. The same in advantages: left out."""
    values = honest(rng)
    sizes = {"V": weiszfeld(np.stack([v.mean(axis=1) for v in values]))[1], "A": None}
    shifted = [*values[:4], values[4] + 7 * np.median(sizes["V"]) / np.sqrt(50)]
    assert near_the_centre([np.stack(shifted)]).all()
    turned = [*values[:4], values[4] + 7 * np.median(sizes["V"]) / np.sqrt(50) * np.array([1, -1])]
    np.testing.assert_array_equal(near_the_centre([np.stack(turned)]), [1, 1, 1, 1, 0])


@pytest.mark.parametrize("rule", ["auto", "multi-krum"])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6, 1e9])
def test_whom_to_believe_does_not_depend_on_how_large_the_lie_is(rng, rule, size):
    """Nor on rounding, where values are 1e8 times as large as the honest spread."""
    values = np.stack(honest(rng, spread=1e-6)) + np.array([0, 0, 1, 0, 0])[:, None, None] * size * 1e3 * np.array(
        [1, -1]
    )
    np.testing.assert_array_equal(RULES[rule].select([values]), [1, 1, 0, 1, 1])


def falsified(attack, values, liars, teacher=None):
    class Honest:
        def round(self, teacher, quota, clients=None):
            return replies_of(values)

    return Attacked(Honest(), attack, liars, seed=0).round(teacher, Quota(1))


LOUD = ("sign-flip", "scaled", "noise", "constant")


@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize("attack", LOUD)
@pytest.mark.parametrize("rule", ["auto", "median", "geometric-median"])
def test_loud_lies_of_a_minority_hardly_move_the_teacher(rng, rule, attack, share):
    values = honest(rng)
    lies = falsified(attack, values, range(share))
    truth = np.mean(values[share:], axis=0)
    off = np.sqrt(np.mean((teacher(rule, lies) - truth) ** 2))
    # Within the spread of single honest clients (0.1), where the lies are 20 to 200 away. Two of five move the
    # geometric median by half of that again.
    assert off < 0.2
    # Negative control: the mean goes with them, by a fifth of the way at least.
    assert np.sqrt(np.mean((teacher("mean", lies) - truth) ** 2)) > 4


@pytest.mark.parametrize("attack", sorted(FIXED))
def test_auto_is_never_further_off_than_the_honest_are_apart(rng, attack):
    values = honest(rng)
    lies = falsified(attack, values, [2], teacher={"Q": values[0] - 3})
    truth = np.mean([v for i, v in enumerate(values) if i != 2], axis=0)
    assert np.sqrt(np.mean((teacher("auto", lies) - truth) ** 2)) < 0.1


def test_robust_rules_work_across_encoders_of_different_dimension(rng):
    """Three honest clients of different D know a function, one sends noise: the others' Q on anchors outvotes it."""
    from conftest import by_hand
    from fedqhd.agents import ReplayQHD
    from fedqhd.encoders import RandomFourier

    anchors = rng.normal(size=(200, 2)).astype(np.float32)
    truth = np.stack([np.sin(anchors[:, 0]), np.cos(anchors[:, 1])], axis=1)
    agents = []
    for D in (300, 500, 900, 400):
        agent = ReplayQHD(RandomFourier.sample(2, D, 1.0, rng), 2, by_hand("replay", lam=1e-4), rng)
        agent.fit_anchors(anchors, truth + 0.02 * rng.normal(size=truth.shape))
        agents.append(agent)
    lies = falsified("noise", [a.q(anchors) for a in agents], [3])
    for agent in agents[:3]:
        agent.fit_anchors(anchors, teacher("auto", lies))
        assert np.abs(agent.q(anchors) - truth).mean() < 0.03
        agent.fit_anchors(anchors, teacher("mean", lies))
        assert np.abs(agent.q(anchors) - truth).mean() > 0.5


def test_what_the_liars_send(rng):
    own, others = rng.normal(size=(6, 2)), rng.normal(size=(4, 6, 2))
    scene = Scene(own, others, first=own + 1, teacher=own + 2, rng=rng)
    np.testing.assert_array_equal(ATTACKS["sign-flip"](scene), -own)
    np.testing.assert_array_equal(ATTACKS["scaled"](scene), -10 * own)
    np.testing.assert_array_equal(ATTACKS["stale"](scene), own + 1)
    np.testing.assert_array_equal(ATTACKS["lazy"](scene), own + 2)
    constant = ATTACKS["constant"](scene)
    assert np.ptp(constant[:, 0]) == 0
    assert constant[0, 0] > 5 * np.abs(others).mean()
    lie, mean, spread = ATTACKS["collude"](scene), others.mean(axis=0), others.std(axis=0)
    np.testing.assert_allclose(np.abs(lie - mean), LITTLE * spread)
    # Against the honest policy: the better action is made to look worse, the worse one better.
    better = mean.argmax(axis=1)
    rows = np.arange(6)
    assert (lie < mean)[rows, better].all()
    assert (lie > mean)[rows, 1 - better].all()


def test_liars_repeat_and_only_they_lie(rng):
    values = honest(rng)
    one, two = (falsified("noise", values, [1, 3]) for _ in range(2))
    for a, b, v in zip(one, two, values, strict=True):
        np.testing.assert_array_equal(a.payload["Q"], b.payload["Q"])
        assert np.array_equal(a.payload["Q"], v) == (a.client not in (1, 3))


NUMERIC = sorted(name for name, rule in RULES.items() if not rule.plays)
"""The rules that judge replies by their numbers alone; the others are tested in test_liars.py."""
rows = st.integers(1, 9).flatmap(
    lambda N: st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=N, max_size=N)
)


@given(rows, st.sampled_from(NUMERIC))
def test_every_rule_stays_within_what_the_clients_said_in_any_order(values, rule):
    replies = replies_of([np.array(v).reshape(2, 2) for v in values])
    made = teacher(rule, replies)
    P = np.stack([r.payload["Q"] for r in replies])
    slack = 1e-9 * (1 + np.abs(P).max())
    assert (made >= P.min(axis=0) - slack).all()
    assert (made <= P.max(axis=0) + slack).all()
    np.testing.assert_array_equal(teacher(rule, replies[::-1]), made)  # to the bit


@given(rows, st.sampled_from(NUMERIC))
def test_rules_leave_their_inputs_alone(values, rule):
    replies = replies_of([np.array(v).reshape(2, 2) for v in values])
    before = [r.payload["Q"].copy() for r in replies]
    teacher(rule, replies)
    for r, b in zip(replies, before, strict=True):
        np.testing.assert_array_equal(r.payload["Q"], b)


def test_complex_weights_and_their_type_survive_every_rule(rng):
    W = [(rng.normal(size=(8, 2)) + 1j * rng.normal(size=(8, 2))).astype(np.complex64) for _ in range(5)]
    for rule in RULES:
        made = RULES[rule].combine(replies_of(W), "Q")
        assert made.dtype == np.complex64
        assert made.shape == (8, 2)
    np.testing.assert_allclose(RULES["median"].combine(replies_of(W), "Q").imag, np.median([w.imag for w in W], axis=0))
    assert multi_krum([np.stack(W)]).sum() == 4
