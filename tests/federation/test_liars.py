"""Liars that know the rule, and the rule that plays what they send."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_aggregate import honest, replies_of

from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Expected, Quota
from fedqhd.envs.public import make_public
from fedqhd.federation import (
    ADAPTIVE,
    FIXED,
    AnchorCompile,
    Attacked,
    Participant,
    Server,
    TeacherAnchors,
    play,
    rule_of,
    weighted_mean,
)
from fedqhd.federation.play import EPISODES, Level, Play, Stage, clearly_worse, play_off, plays_well
from fedqhd.federation.validate import check_reply
from fedqhd.federation.wrappers.adaptive import CLAIM, DRIFT, LARGEST, RARE
from fedqhd.federation.wrappers.attacks import LITTLE, SCALE, Scene, advantages
from fedqhd.runs import checkpoint
from fedqhd.runs.run import train
from fedqhd.studies.catalogue.liars import GOALS, Liars
from fedqhd.studies.plan import Plan

VOTES = {"Q": Expected((None, None), "f")}


def scene(values, liars, rule="auto", **known):
    """What liars know who are the first of the clients."""
    own, others = values[0], np.stack(values[liars:])

    def accepts(lie):
        return all(rule_of(rule).accepted(replies_of([lie] * liars + list(others)), VOTES)[:liars])

    return Scene(own, others, own, None, np.random.default_rng(0), accepts, **known)


# --- the attacks ---


@pytest.mark.parametrize("liars", [1, 2])
@pytest.mark.parametrize("attack", ["limit", "spread", "rare"])
def test_the_largest_lie_is_accepted_and_one_percent_more_is_refused(rng, attack, liars):
    s = scene(honest(rng), liars)
    lie, mean = ADAPTIVE[attack](s), s.honest.mean(axis=0)
    assert s.accepts(lie)
    assert not s.accepts(mean + 1.01 * (lie - mean))


@pytest.mark.parametrize("attack", ["limit", "sybil"])
def test_a_lie_goes_against_the_policy_of_the_honest(rng, attack):
    s = scene(honest(rng), 2)
    lie, mean = ADAPTIVE[attack](s), s.honest.mean(axis=0)
    turned = advantages(lie - mean) * advantages(mean)
    assert np.mean(turned < 0) > 0.9


def test_spread_departs_by_the_same_number_of_standard_deviations_everywhere(rng):
    s = scene(honest(rng), 2)
    z = np.abs(ADAPTIVE["spread"](s) - s.honest.mean(axis=0)) / s.honest.std(axis=0)
    np.testing.assert_allclose(z, z[0, 0])
    assert z[0, 0] > LITTLE  # more than the fixed lie of `collude`


def test_sybils_make_the_rule_leave_out_honest_clients_instead_of_them(rng):
    s = scene(honest(rng), 2)
    counted = rule_of("auto").accepted(replies_of([ADAPTIVE["sybil"](s)] * 2 + list(s.honest)), VOTES)
    assert all(counted[:2])
    beside = np.linalg.norm(s.honest - ADAPTIVE["sybil"](s), axis=(1, 2)).argmin()
    apart = [np.linalg.norm(advantages(x - s.honest.mean(axis=0))) for x in s.honest]
    assert beside == np.argmax(apart)
    # Next to their neighbour, the two outweigh the other two honest clients.
    tight = [s.honest[beside] + 1e-3 * rng.normal(size=s.own.shape) for _ in range(2)]
    assert rule_of("auto").accepted(replies_of([*tight, *s.honest]), VOTES).count(False) == 2


def test_min_max_is_as_far_from_the_honest_as_they_are_from_each_other(rng):
    s = scene(honest(rng), 2)
    lie, mean = ADAPTIVE["min-max"](s), s.honest.mean(axis=0)
    widest = max(np.linalg.norm(a - b) for a in s.honest for b in s.honest)
    assert max(np.linalg.norm(lie - x) for x in s.honest) <= widest
    assert max(np.linalg.norm(mean + 1.01 * (lie - mean) - x) for x in s.honest) > widest


def test_rare_tells_the_truth_wherever_the_honest_agree(rng):
    s = scene(honest(rng), 1)
    differ = s.honest.std(axis=0).sum(axis=1)
    lied = (ADAPTIVE["rare"](s) != s.honest.mean(axis=0)).any(axis=1)
    assert lied.sum() == RARE * len(differ)
    assert differ[lied].min() > differ[~lied].max()


def test_probe_lies_wherever_the_rule_does_not_look_and_nowhere_else(rng):
    s = scene(honest(rng), 1)
    mean = s.honest.mean(axis=0)
    looks = rng.random(len(mean)) < 0.1
    blind = ADAPTIVE["probe"](s._replace(accepts=lambda lie: np.array_equal(lie[looks], mean[looks])))
    np.testing.assert_array_equal(blind[looks], mean[looks])
    lied = (blind != mean).any(axis=1)
    assert 0 < lied.sum() < len(mean)
    np.testing.assert_allclose(advantages(blind[lied]), -LARGEST * advantages(mean[lied]))
    everywhere = ADAPTIVE["probe"](s._replace(accepts=lambda lie: True))
    np.testing.assert_allclose(advantages(everywhere), -LARGEST * advantages(mean))


def test_values_lies_about_states_and_not_about_actions(rng):
    s = scene(honest(rng), 1)
    lie, mean = ADAPTIVE["values"](s), s.honest.mean(axis=0)
    np.testing.assert_allclose(advantages(lie), advantages(mean), atol=1e-12 * SCALE)
    shift = (lie - mean).mean(axis=1)
    np.testing.assert_allclose(np.abs(shift), SCALE * np.sqrt(np.mean(s.honest**2)))
    assert 0.2 < np.mean(shift > 0) < 0.8


def test_drift_begins_as_the_truth_and_goes_further_with_each_episode(rng):
    values = honest(rng)
    away = [np.abs(ADAPTIVE["drift"](scene(values, 1, episodes=e)) - np.mean(values[1:], axis=0)) for e in (0, 50, 100)]
    assert not away[0].any()
    np.testing.assert_allclose(away[1], DRIFT * 50 * np.std(values[1:], axis=0))
    np.testing.assert_allclose(away[2], 2 * away[1])


def test_a_weight_is_claimed_where_it_can_be_and_the_server_cannot_tell(rng):
    values = honest(rng)

    class Honest:
        def round(self, teacher, quota, clients=None):
            return [r._replace(weight=70.0, steps=70) for r in replies_of(values)]

    false, true = Attacked(Honest(), "claimed-weight", [0], seed=0).round(None, Quota(1))[:2]
    assert (false.weight, false.steps, true.weight) == (CLAIM * 70, CLAIM * 70, 70)
    check_reply(false, [Participant("", None)], VOTES, 1e9)
    own = rng.normal(size=(5, 2)) ** 2
    claimed = ADAPTIVE["claimed-weight"](Scene(own, own[None], own, None, rng, name="precision"))
    np.testing.assert_array_equal(claimed, CLAIM * own)


def test_an_attack_that_needs_the_rule_is_told_its_verdict(rng):
    """Wrapped around an engine, the liars of `limit` are accepted by the rule that they were told."""
    values = honest(rng)

    class Honest:
        def round(self, teacher, quota, clients=None):
            return replies_of(values)

    rule = rule_of("auto")
    liars = Attacked(Honest(), "limit", [1, 3], 0, lambda replies, teacher: rule.accepted(replies, VOTES))
    replies = liars.round(None, Quota(1))
    assert all(rule.accepted(replies, VOTES)[i] for i in (1, 3))
    np.testing.assert_array_equal(replies[1].payload["Q"], replies[3].payload["Q"])
    loud = Attacked(Honest(), "limit", [1, 3], 0).round(None, Quota(1))  # a rule that accepts everything
    assert not rule.accepted(loud, VOTES)[1]


# --- the rule that plays ---


def test_clearly_worse_is_by_two_standard_errors_in_the_same_episodes():
    base = np.array([10.0, 200, 30, 400])  # episodes differ more than policies do
    assert clearly_worse(base - np.array([5.0, 6, 5, 6]), base)
    assert not clearly_worse(base - np.array([5.0, -6, 5, -6]), base)
    assert not clearly_worse(base, base)
    assert not clearly_worse(base + 5, base)


def judged(angles, last=None):
    """Whom `play_off` keeps where advantages are directions in a plane, and earn less the further they are from 10."""
    A = np.array([[[np.cos(np.radians(v))], [np.sin(np.radians(v))]] for v in angles])

    def earn(Q):
        angle = np.degrees(np.arctan2(Q[1, 0], Q[0, 0]))
        return 100 - abs(round(float(angle) - 10, 6)) + np.array([0.0, 0.5, 1.0, 0.2])

    kept = play_off(Level(np.zeros((2, 1)), A, 1.0), Play(earn, last))
    return [i in kept for i in range(len(angles))]


def test_a_reply_is_left_out_if_the_teacher_plays_better_without_it():
    """Four clients play equally badly. Without two of them, the others' errors cancel out."""
    assert judged([10.0, 7, 7, 7, 13]) == [True, False, False, True, True]
    assert judged([0.0] * 5) == [True] * 5  # nobody has learned anything yet
    assert judged([-90.0]) == [True]


def test_who_plays_worse_than_the_median_client_is_left_out():
    episodes = np.array([0.0, 3, 1, 2])
    returns = np.stack([90 + episodes, 20 + episodes, 95 + episodes[::-1], 100 + episodes, 10 + episodes])
    np.testing.assert_array_equal(plays_well(returns), [True, False, True, True, False])
    assert plays_well(np.ones((5, 4))).all()  # nobody has learned anything yet
    assert judged([10.0, 10, 10, -90, -90]) == [True, True, True, False, False]


def test_replies_are_left_out_until_the_teacher_plays_as_well_as_the_last_one():
    assert judged([10.0, 10, 8, 6, 6], last=np.array([100.0, 100.5, 101, 100.2])).count(False) == 3


OPTIONS = {
    "setting": "heterogeneous", "learner": "least-squares", "clients": 5, "dims": [60, 80], "anchors": 100,
    "anchor_source": "teacher", "aggregate": "played",
}  # fmt: skip


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A federation on CartPole, a server that plays, and the values of a policy that balances the pole."""
    c = tiny(tmp_path_factory.mktemp("liars"), env="CartPole-v1", **OPTIONS)
    public = make_public(c)
    server = Server([Participant("")] * 5, rule=rule_of("played"), stage=Stage(c, public))
    federation = TeacherAnchors(AnchorCompile(public.anchors, 2), lambda anchors, Q, episodes: anchors)
    states = public.anchors * public.scaler.scale + public.scaler.shift
    lean = states[:, 2] + 0.5 * states[:, 3] + 0.1 * states[:, 0] + 0.2 * states[:, 1]
    return server, federation, np.stack([-lean, lean], axis=1)


def test_replies_that_play_badly_are_left_out_and_a_bad_teacher_is_taken_back(cartpole, rng):
    server, federation, good = cartpole
    # The honest clients differ so much that the liars are not far from them, in their numbers.
    clients = [good + 0.4 * good.std() * rng.normal(size=good.shape) for _ in range(5)]
    clients[1] = clients[4] = -1.7 * good
    state, teacher = server.aggregate(0, federation, federation.start(), None, replies_of(clients))
    assert server.used_weights
    assert not server.used_weights.keys() & {1, 4}
    level = Level.of(np.stack(clients))
    np.testing.assert_allclose(teacher["Q"], level.teacher(list(server.used_weights)))
    assert server.counts["played episodes"] >= (4 + 1) * EPISODES  # of the replies, two are equal; and the teacher
    played = server.stage.play(federation.anchors_of(teacher), teacher["Q"], 0)
    assert played.returns.mean() > 5 * server.stage.play(federation.anchors_of(teacher), -good, 0).returns.mean()
    # If all agree on a bad policy, none of them is better, but their teacher is worse than the last one.
    again = server.aggregate(1, federation, state, teacher, replies_of([-good] * 5))
    assert again[0] is state
    assert again[1] is teacher
    assert server.counts["taken back"] == 1
    assert not server.used_weights


def test_a_policy_plays_the_same_whenever_it_is_asked_and_differently_in_another_round(cartpole):
    server, federation, good = cartpole
    anchors = federation.reported_at(None)
    stages = [Stage(server.stage.config, server.stage.public) for _ in range(2)]
    stages[1].play(anchors, -good, 3)
    one, two = (stage.play(anchors, 0.1 * good[::-1], 3) for stage in stages)
    np.testing.assert_array_equal(one.returns, two.returns)
    assert not np.array_equal(one.returns, stages[0].play(anchors, 0.1 * good[::-1], 4).returns)


# --- what a client can decide ---


def test_level_by_hand():
    """Three clients, two anchors, two actions. The advantages have the lengths 2, 4 and 20."""
    Q = np.array([[[1.0, -1], [1, -1]], [[7, 3], [5, 5 - 4]], [[9 + 10, 9 - 10], [6 + 10, 6 - 10]]])
    level = Level.of(Q)
    np.testing.assert_allclose(level.V[:, 0], [5, 3])
    assert level.length == 4
    np.testing.assert_allclose(level.A[:, :, 0], [[1, 1], [2, 2], [2, 2]])
    np.testing.assert_allclose(level.A[:, :, 1], -level.A[:, :, 0])
    np.testing.assert_allclose(level.teacher([0, 1, 2]), [[7, 3], [5, 1]])
    np.testing.assert_allclose(level.counting([0, 2]).mean(axis=0), level.teacher([0, 2]))


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_a_lie_of_any_size_neither_outweighs_nor_weakens_the_others(rng, size):
    clients = np.stack(honest(rng))
    clients[:2] = size * advantages(rng.normal(size=clients[:2].shape))
    level = Level.of(clients)
    lengths = [np.linalg.norm(advantages(Q)) for Q in clients]
    assert min(lengths[2:]) <= level.length <= max(lengths[2:])
    assert np.linalg.norm(level.A, axis=(1, 2)).max() <= level.length * (1 + 1e-12)
    for kept in ([0, 1, 2, 3, 4], [0, 1], [0, 4]):
        np.testing.assert_allclose(np.linalg.norm(advantages(level.teacher(kept))), level.length)


def test_a_minority_cannot_move_the_value_of_a_state_beyond_what_the_others_say(rng):
    clients = np.stack(honest(rng))
    clients[:2] += 1e6 * rng.choice([-1.0, 1.0], size=(2, clients.shape[1], 1))
    V, own = Level.of(clients).V, clients[2:].mean(axis=2, keepdims=True)
    assert (own.min(axis=0) <= V).all()
    assert (own.max(axis=0) >= V).all()
    assert np.abs(clients.mean(axis=(0, 2))).max() > 1e5  # the mean of all


def test_who_has_learned_nothing_has_no_say():
    Q = np.zeros((5, 3, 2))
    Q[1] = [[1.0, 3], [2, 2], [5, 4]]
    np.testing.assert_allclose(Level.of(Q).teacher(range(5)), Q[1])
    np.testing.assert_array_equal(Level.of(np.zeros((5, 3, 2))).teacher(range(5)), 0)
    np.testing.assert_allclose(Level.of(Q[1:2]).teacher([0]), Q[1])  # a client by itself


def test_each_client_has_one_vote_whatever_it_claims(rng):
    values = honest(rng)
    claims = [r._replace(weight=w) for r, w in zip(replies_of(values), (1000.0, 1, 1, 1, 0), strict=True)]
    counted = rule_of("played").counted(claims, VOTES, Play(lambda Q: np.ones(3)))
    assert [r.weight for r in counted.values()] == [1.0] * 4
    np.testing.assert_allclose(
        weighted_mean(list(counted.values()), "Q"), Level.of(np.stack(values[:4])).teacher(range(4))
    )


def test_liars_beside_one_client_neither_outvote_the_others_nor_weaken_the_teacher(cartpole, rng):
    """Two liars have the values of a client, with hardly any of its advantages, so that their policy is as good."""
    server, federation, good = cartpole
    clients = [good + 0.01 * rng.normal(size=good.shape) for _ in range(5)]
    clients[0] = clients[1] = clients[2] - 0.999 * advantages(clients[2])
    verdict = server.verdict(federation, replies_of(clients), None)
    assert verdict[3:] == [True, True]
    replies = server.select(0, replies_of(clients), VOTES, server._play(0, federation, None, server.counts))
    teacher = advantages(weighted_mean(replies, "Q"))
    assert np.linalg.norm(teacher) > 0.99 * np.linalg.norm(advantages(good))


def test_a_policy_earns_the_same_in_a_kernel_and_in_python(cartpole, monkeypatch):
    server, federation, good = cartpole
    config, public = server.stage.config, server.stage.public
    quick = Stage(config, public).play(federation.reported_at(None), good, 0)
    monkeypatch.setattr(play, "LONGEST", 70)
    short = Stage(config, public).play(federation.reported_at(None), good, 0)
    monkeypatch.setattr(play, "twin_for", lambda model, env, scaler: None)
    in_python = Stage(config, public).play(federation.reported_at(None), good, 0)
    np.testing.assert_array_equal(short.returns, in_python.returns)
    assert short.steps == in_python.steps
    assert short.returns.max() == 70 < quick.returns.max()


def test_a_server_that_cannot_play_says_so(rng):
    with pytest.raises(FedQHDError, match=r"aggregate=played is not possible: the server plays.*anchor_source=teacher"):
        Server(rule=rule_of("played")).select(0, replies_of(honest(rng)), VOTES)


class Cut(Exception):
    """The moment a run dies."""


@pytest.mark.parametrize("attack", [pytest.param("limit", marks=pytest.mark.slow), "drift"])
def test_a_run_that_plays_and_dies_resumes_to_the_same_bits(tmp_path, monkeypatch, attack):
    options = {**OPTIONS, "env": "CartPole-v1", "episodes": 4, "round_episodes": 1, "attack": attack, "liars": 0.4}
    whole = train(tiny(tmp_path / "whole", **options))
    assert whole["played"]["episodes"] >= 4 * 2 * EPISODES  # equal values are played once a round
    assert whole["played"]["steps"] > whole["played"]["episodes"]
    real = checkpoint.save

    def save_then_die(folder, done, *rest):
        real(folder, done, *rest)
        if done.rounds_done == 2:
            raise Cut

    with monkeypatch.context() as m:
        m.setattr(checkpoint, "save", save_then_die)
        with pytest.raises(Cut):
            train(tiny(tmp_path / "cut", **options))
    resumed = train(tiny(tmp_path / "cut", **options), resume=True)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "cut")]
    assert metrics[0] == metrics[1]
    for name in ("played", "replies", "greedy_return_per_client"):
        assert resumed[name] == whole[name]


# --- the study ---


def test_the_study_has_every_attack_and_rule_and_begins_without_liars():
    cases = Liars().cases(None)
    assert len(set(cases)) == len(cases)
    assert {(c.lying, c.clients) for c in cases} == set(GOALS)
    assert {c.attack for c in cases} == {"none", *FIXED, *ADAPTIVE}
    assert {c.seed for c in cases if c.lying} == {1, 2, 3, 4, 5}
    assert len([c for c in cases if c.attack == "none" and c.clients == 5 and c.aggregate in ("mean", "played")]) == 40
    assert cases[0].lying == 0
    plan = Plan()
    assert len({Liars().job(plan, c).folder for c in cases[:200]}) == 200


def test_the_table_of_the_study_shows_shares_of_the_clean_return():
    def row(attack, lying, rule, seed, value):
        return {
            "attack": attack, "lying": lying, "clients": 5, "aggregate": rule, "seed": seed, "return": value,
            "commit": "abc1234",
        }  # fmt: skip

    rows = [row("none", 0, "mean", s, 500.0) for s in (0, 1)]
    rows += [row("sybil", 2, "played", 0, 450.0), row("sybil", 2, "played", 1, 400.0), row("sybil", 2, "auto", 0, 50.0)]
    text = "\n".join(Liars().table(rows))
    assert "| sybil | **85.0%** (≥ 80%, 2) | 10.0% (≥ 10%, 1) | –" in text
    assert json.dumps(rows)
