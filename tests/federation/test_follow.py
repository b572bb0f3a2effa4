"""Anchors that follow the teacher: which encoder, which policy and which draws the server's rollout is made of."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from conftest import tiny
from fedqhd.core import rng
from fedqhd.encoders import RandomFourier
from fedqhd.envs.public import make_public
from fedqhd.federation import follow
from fedqhd.federation.follow import server_encoder, teacher_rollout
from fedqhd.linalg.ridge import compile_teacher

OPTIONS = {
    "env": "CartPole-v1", "setting": "heterogeneous", "learner": "online", "anchor_source": "teacher", "anchors": 101,
    "dims": [400, 60, 90], "encoder": ["fourier", "complex"], "sigma": 1.25, "rollout_steps": 300, "lam": 1e-3,
    "clients": 3, "seed": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("follow"), **OPTIONS)


@pytest.fixture(scope="module")
def public(settings):
    return make_public(settings)


@pytest.fixture(scope="module")
def balancing(public):
    """The values of a policy that pushes the cart to where the pole leans."""
    states = public.anchors * public.scaler.scale + public.scaler.shift
    lean = states @ [0.1, 0.2, 1.0, 0.5]
    return np.stack([-lean, lean], axis=1)


def test_the_server_has_the_first_kind_of_encoder_with_the_median_dimension(settings, public):
    drawn = rng.generator(4, rng.PUBLIC, "server")
    assert server_encoder(settings, public).fingerprint() == RandomFourier.sample(4, 90, 1.25, drawn).fingerprint()
    even = settings.replace(dims=(10, 40, 20, 30))
    assert server_encoder(even, public).D == 30  # of two in the middle, the larger one


def test_an_encoder_that_is_fitted_to_states_is_fitted_to_those_of_the_clients(settings, public):
    fitted = settings.replace(encoder=("sklearn.kernel_approximation:Nystroem",))
    states = public.measure_states
    one, same, other = (server_encoder(fitted, public._replace(fit_states=x)) for x in (states, states, 2 * states))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.fixture
def watched(monkeypatch):
    """What every rollout was asked for, and the states it met."""
    seen, states_met = [], follow.states_met

    def watch(env, steps, generator, act):
        begun = copy.deepcopy(generator)
        states = states_met(env, steps, generator, act)
        seen.append((env, steps, begun, act, states))
        return states

    monkeypatch.setattr(follow, "states_met", watch)
    return seen


def test_half_of_the_anchors_are_old_ones_and_half_are_states_that_the_teacher_meets(
    settings, public, balancing, watched
):
    following = teacher_rollout(settings, public)(public.anchors, balancing, 12)
    ((env, steps, generator, _, states),) = watched
    assert (env.spec.id, steps) == ("CartPole-v1", 101)
    assert following.shape == (101, 4)
    assert following.dtype == np.float32

    def rows(A):
        return {tuple(a) for a in A}

    # 50 old ones and 51 new ones, each without repetition.
    assert len(rows(following[:50]) & rows(public.anchors)) == 50
    assert rows(following[50:]) <= rows(public.scaler(states))
    assert len(rows(following[50:])) == 51
    assert not np.array_equal(following[:50], public.anchors[:50])  # drawn, not the first ones
    due = np.random.default_rng(rng.env_seed(4, rng.PUBLIC, "teacher", 12))
    assert generator.bit_generator.state == due.bit_generator.state


def test_a_rollout_is_the_same_whenever_it_is_asked_for_and_another_after_other_episodes(settings, public, balancing):
    rollouts = [teacher_rollout(settings, public) for _ in range(2)]
    one, two = (rollout(public.anchors, balancing, 12) for rollout in rollouts)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, rollouts[0](public.anchors, balancing, 13))
    other = settings.replace(seed=5)
    assert not np.array_equal(one, teacher_rollout(other, public)(public.anchors, balancing, 12))


def test_the_policy_is_that_of_the_teacher_but_for_one_action_in_ten(settings, public, balancing, watched):
    teacher_rollout(settings, public)(public.anchors, balancing, 12)
    act = watched[0][3]
    encoder, scaler = server_encoder(settings, public), public.scaler
    W = compile_teacher(encoder(public.anchors), balancing, 1e-3)
    states = public.measure_states * scaler.scale + scaler.shift
    greedy = (encoder(scaler(states)) @ W).real.argmax(axis=1)
    other = np.mean([act(s) != a for s, a in zip(states, greedy, strict=True)])
    # One action in ten is drawn from two: 0.05 differ, with a standard deviation of 0.05^0.5 / 300^0.5 = 0.013.
    assert len(states) == 300
    assert 0.05 - 4 * 0.013 < other < 0.05 + 4 * 0.013
    assert other > 0


def test_a_good_teacher_leads_to_other_states_than_a_bad_one(settings, public, balancing, watched):
    """A balanced pole falls after more than 100 steps, one that is pushed over after some ten."""
    rollout = teacher_rollout(settings, public)
    for Q in (balancing, -balancing):
        rollout(public.anchors, Q, 12)
    upright, fallen = (np.mean(np.abs(states[:, 2]) < 0.1) for *_, states in watched)
    assert upright > 0.9
    assert fallen < 0.8


def test_the_ridge_and_repeated_actions_are_those_of_the_run(settings, public, balancing, watched):
    def states(**changes):
        teacher_rollout(settings.replace(**changes), public)(public.anchors, balancing, 12)
        return watched[-1][4]

    plain = states()
    assert not np.array_equal(states(lam=100.0), plain)
    slow = states(action_repeat=3)
    assert not np.array_equal(slow, plain)
    # The cart moves by 0.02 s times its speed in each step, and by three times as much in three.
    assert np.abs(np.diff(slow[:30, 0])).max() > 1.5 * np.abs(np.diff(plain[:30, 0])).max()
