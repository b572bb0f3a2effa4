"""The theory of the gap: identities, numbers by hand, and the paper's claims where they hold and where they do not."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from fedqhd.encoders import ENCODERS
from fedqhd.gap import bound as gap
from fedqhd.linalg.geometry import Spectrum, gram, misalignment, principal_angles, span, stacked_weights, states_needed
from fedqhd.linalg.normal import leave_one_out
from fedqhd.linalg.ridge import compile_teacher, stacked

SHAPES = [(60, 20), (20, 60), (30, 30)]


def features(kind, m, D, rng, sigma=0.5):
    return ENCODERS[kind].sample(3, D, sigma, rng)(rng.uniform(-2, 2, (m, 3)))


@pytest.mark.parametrize(("m", "D"), SHAPES)
@pytest.mark.parametrize("kind", ["fourier", "complex"])
def test_the_spectrum_is_that_of_the_gram_matrix(m, D, kind, rng):
    X = features(kind, m, D, rng)
    anchors = Spectrum(X, rtol=1e-6)
    eigenvalues = np.linalg.eigvalsh(gram(X))[::-1][: anchors.rank]
    np.testing.assert_allclose(anchors.s**2, eigenvalues, rtol=1e-8, atol=1e-12)
    assert anchors.gamma == pytest.approx(eigenvalues[-1], rel=1e-3)
    assert anchors.condition == pytest.approx(eigenvalues[0] / eigenvalues[-1], rel=1e-3)
    G, lam = gram(X), 0.1
    assert Spectrum(X).effective_rank(lam) == pytest.approx(np.trace(G @ np.linalg.inv(G + lam * np.eye(m))), rel=1e-9)


@pytest.mark.parametrize(("m", "D"), SHAPES)
@pytest.mark.parametrize("kind", ["fourier", "complex"])
@pytest.mark.parametrize("lam", [0.0, 1e-2])
def test_it_solves_as_the_ridge_does(m, D, kind, lam, rng):
    X, Q = features(kind, m, D, rng), rng.normal(size=(m, 2))
    ours, theirs = Spectrum(X, rtol=1e-7).solve(Q, lam), stacked_weights(compile_teacher(X, Q, lam))
    if lam:
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())
    else:  # both fit the anchors as well as can be; the weights of tiny singular values may differ
        S = stacked(X)
        np.testing.assert_allclose(S @ ours, S @ theirs, atol=1e-4)


def test_gamma_depends_on_the_cut_and_says_so(rng):
    """One singular value of 1e-9 beside one of 1."""
    X = np.diag([1.0, 1e-9])
    assert (Spectrum(X).rank, Spectrum(X).gamma) == (2, pytest.approx(1e-18))
    cut = Spectrum(X, rtol=1e-6)
    assert (cut.rank, cut.gamma, cut.rtol) == (1, 1.0, 1e-6)


def test_leave_one_out_is_what_leaving_one_out_gives(rng):
    """Against as many refits as there are anchors, and against the same number from normal equations."""
    X, Q, lams = features("fourier", 30, 12, rng), rng.normal(size=(30, 2)), np.array([1e-3, 0.1, 10.0])
    path = Spectrum(X).leave_one_out(Q, lams)
    for lam, error in zip(lams, path, strict=True):
        left = []
        for i in range(30):
            rest = np.arange(30) != i
            left.append(Q[i] - X[i] @ compile_teacher(X[rest], Q[rest], lam))
        assert error == pytest.approx(np.sqrt(np.mean(np.square(left))), rel=1e-8)
    one = leave_one_out(X.T @ X, X.T @ Q[:, 0], X, Q[:, 0], lams)
    np.testing.assert_allclose(Spectrum(X).leave_one_out(Q[:, :1], lams) ** 2, one, rtol=1e-8)


def test_the_split_by_hand():
    """One anchor sees the first of two features. W1 = (2, 3), lam = 1, Q = X W1 + 4: the fit is (2 + 4) / 2 = 3."""
    X, W1 = np.array([[1.0, 0.0]]), np.array([[2.0], [3.0]])
    parts = gap.split(Spectrum(X), np.array([[6.0]]), X, W1, 1.0)
    np.testing.assert_allclose(parts.leaked.ravel(), [2.0, 0.0])
    np.testing.assert_allclose(parts.shrunk.ravel(), [1.0, 0.0])
    np.testing.assert_allclose(parts.unseen.ravel(), [0.0, 3.0])
    np.testing.assert_allclose((W1 + parts.total).ravel(), [3.0, 0.0])
    assert gap.share_outside(Spectrum(X), W1) == pytest.approx(9 / 13)


@settings(max_examples=40)
@given(
    m=st.integers(2, 30), D=st.integers(2, 30), lam=st.sampled_from([1e-4, 1e-2, 1.0]), warm=st.booleans(),
    kind=st.sampled_from(["fourier", "complex"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_the_split_is_exact_and_its_bound_holds_everywhere(m, D, lam, warm, kind, seed):
    """leaked - shrunk - unseen is W - W1 to rounding, and |Phi| <= 1 bounds it, whatever the rank."""
    rng = np.random.default_rng(seed)
    encoder = ENCODERS[kind].sample(3, D, 0.5, rng)
    X, Phi = (stacked(encoder(rng.uniform(-2, 2, (k, 3)))) for k in (m, 200))
    p = X.shape[1]
    W1, W0, Q = (
        rng.normal(size=(p, 2)),
        (rng.normal(size=(p, 2)) if warm else np.zeros((p, 2))),
        rng.normal(size=(m, 2)),
    )
    anchors = Spectrum(X, rtol=1e-8)
    parts = gap.split(anchors, Q, X, W1, lam, W0)
    W = W0 + compile_teacher(X, Q - X @ W0, lam)
    # What the cut leaves out has s / lam <= 1e-8 / 1e-4 of the size of the weights.
    np.testing.assert_allclose(W1 + parts.total, W, atol=1e-3)
    bound = gap.gap_bound(anchors, 0.0, W1, parts, lam)
    assert np.abs(Phi @ (W - W1)).max() <= bound.corrected + 1e-3


def one_client(m, D=500, lam=1e-6, seed=0):
    """h_bar = 0: only the ridge and the anchors can make a gap."""
    rng = np.random.default_rng(seed)
    encoder = ENCODERS["fourier"].sample(4, D, 0.5, rng)
    X, Phi = encoder(rng.uniform(-2, 2, (m, 4))), encoder(rng.uniform(-2, 2, (1000, 4)))
    W = rng.normal(size=(D, 1))
    W *= 10 / np.linalg.norm(W)
    anchors = Spectrum(X)
    parts = gap.split(anchors, X @ W, X, W, lam)
    measured = np.abs(Phi @ (W - compile_teacher(X, X @ W, lam))).max()
    return gap.gap_bound(anchors, 0.0, W, parts, lam), measured, W, X, anchors


def test_the_papers_bound_holds_with_more_anchors_than_features():
    bound, measured, *_ = one_client(2000)
    assert bound.valid
    assert bound.reason == ""
    assert measured <= bound.corrected <= bound.total


def test_it_fails_with_fewer_and_says_why():
    """Part of the oracle is outside row(X), and is not invisible off the anchors: the bound is wrong by thousands."""
    bound, measured, W, X, anchors = one_client(50)
    assert not bound.valid
    assert "m=50 anchors are fewer than the 500 features" in bound.reason
    assert measured > 1000 * bound.total
    assert measured <= bound.corrected
    # From its own oracle on, the client loses nothing: warm-start has neither the third term nor the missing one.
    assert np.abs(gap.split(anchors, X @ W, X, W, 1e-6, W).total).max() < 1e-12


def test_dependent_anchors_are_as_good_as_few(rng):
    X = np.repeat(features("fourier", 10, 20, rng), 5, axis=0)
    bound = gap.gap_bound(Spectrum(X), 0.0, np.ones((20, 1)), gap.Split(*(np.zeros((20, 1)) for _ in range(3))), 1e-3)
    assert not bound.valid
    assert "rank 10 of 20: the 50 anchors are nearly dependent" in bound.reason


def test_zero_gap_and_each_condition_alone():
    """Two clients whose features span the same functions, and a target in neither span: the gap vanishes all the same,
    so the paper's 'no representation error' is not needed; full rank, lam -> 0 and equal spans are."""
    rng = np.random.default_rng(0)
    encoder, other = (ENCODERS["fourier"].sample(3, 40, 1.0, rng) for _ in range(2))
    mix = np.eye(40) + rng.normal(size=(40, 40)) / 40
    states, held = rng.uniform(-2, 2, (2000, 3)), rng.uniform(-2, 2, (500, 3))
    target = np.sin(3 * states[:, :1]) * states[:, 1:2] ** 2

    def worst(m, lam, second):
        Phis = [encoder, second]
        W = [np.linalg.lstsq(f(states), target, rcond=None)[0] for f in Phis]
        assert np.abs(encoder(states) @ W[0] - target).max() > 0.1
        X = [f(states[:m]) for f in Phis]
        teacher = (X[0] @ W[0] + X[1] @ W[1]) / 2
        return np.abs(encoder(held) @ (W[0] - compile_teacher(X[0], teacher, lam))).max()

    aligned = lambda s: encoder(s) @ mix  # noqa: E731
    assert worst(400, 0.0, aligned) < 1e-10
    assert worst(20, 0.0, aligned) > 0.1
    assert worst(400, 0.01, aligned) > 0.1
    assert worst(400, 0.0, other) > 0.1


def test_term_two_needs_no_more_than_many_anchors_and_no_ridge(rng):
    """gamma grows as m from a few D on, so sqrt(m / gamma) is flat; a ridge above gamma makes it grow as sqrt(m)."""
    X = ENCODERS["fourier"].sample(3, 20, 0.3, rng)(rng.uniform(-2, 2, (5000, 3)))
    gammas = {m: Spectrum(X[:m]).gamma for m in (20, 300, 1200, 4800)}
    flat = [np.sqrt(m / gammas[m]) for m in (300, 1200, 4800)]
    assert max(flat) < 1.3 * min(flat)
    assert np.sqrt(20 / gammas[20]) > 3 * max(flat)  # at m = D itself it is not
    lam = 1000 * gammas[4800]
    assert np.sqrt(4800 / (gammas[4800] + lam)) > 3.5 * np.sqrt(300 / (gammas[300] + lam))


def test_h_bar_by_hand():
    """pi = (1/2, 1/4, 1/4), B = 2: 1/4 (2 2 0.5 + 1 + 2) + 1/4 (2 2 1 + 1 + 3) = 3.25."""
    sines = np.array([[0.0, 0.5, 1.0]] * 3)
    assert gap.h_bar(0, 2.0, sines, np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.25])) == pytest.approx(3.25)


def test_the_angles_of_the_lemma_are_superfluous(rng):
    """With eps = |(I - Pi) Q*|, two projections of one Q* differ by at most eps_i + eps_j: through Q* itself."""
    states = rng.uniform(-2, 2, (400, 3))
    target = np.sin(states[:, 0]) * states[:, 1]
    U, V = (span(ENCODERS["fourier"].sample(3, 40, 1.0, rng)(states)) for _ in range(2))
    P, R = U @ (U.T @ target), V @ (V.T @ target)
    epsilon = np.linalg.norm(target - P), np.linalg.norm(target - R)
    assert np.linalg.norm(P - R) <= sum(epsilon)
    assert 2 * np.linalg.norm(target) * misalignment(U, V) > 2 * sum(epsilon)  # what the lemma adds to it


def test_misalignment_sees_what_principal_angles_hide(rng):
    states = rng.uniform(-2, 2, (400, 3))
    small, large = (ENCODERS["fourier"].sample(3, D, 0.5, rng)(states) for D in (30, 60))
    U, V = span(small), span(np.hstack([small, large]))  # U's span is part of V's
    assert misalignment(V, U) < 1e-6
    assert misalignment(U, V) == 1.0
    np.testing.assert_allclose(
        np.sort(principal_angles(span(large), U)), np.sort(scipy.linalg.subspace_angles(large, small)), atol=1e-6
    )


def test_angles_on_too_few_states_are_refused_with_the_number(rng):
    """On 60 states two spans of 60 are all of R^60, and every angle is 0: nothing is learned from that."""
    states = rng.uniform(-2, 2, (60, 3))
    U, V = (span(ENCODERS["fourier"].sample(3, 60, 0.5, rng)(states)) for _ in range(2))
    assert scipy.linalg.subspace_angles(U, V).max() < 1e-6
    with pytest.raises(ValueError, match=f"n=60 states are too few .* at least {states_needed(60, 60)}"):
        principal_angles(U, V)


def test_a_projection_in_blocks_is_least_squares(rng):
    Phi, T = features("fourier", 300, 30, rng), rng.normal(size=(300, 2))
    W = gap.project((Phi[k : k + 70], T[k : k + 70]) for k in range(0, 300, 70))
    # The ridge of 1e-8 of the trace costs a thousandth at most.
    best = np.linalg.lstsq(Phi, T, rcond=None)[0]
    assert np.linalg.norm(Phi @ W - T) <= 1.001 * np.linalg.norm(Phi @ best - T)
    with pytest.raises(ValueError, match="no states"):
        gap.project(iter(()))


def test_measure_by_hand():
    found = gap.measure(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 4.0]]))
    assert (found.max, found.max_per_action) == (3.0, (3.0, 2.0))
    assert found.rms == pytest.approx(np.sqrt(13 / 4))
    assert found.rms_per_action == pytest.approx((np.sqrt(9 / 2), np.sqrt(2.0)))


def test_bad_input_is_refused(rng):
    with pytest.raises(ValueError, match="rank 0"):
        Spectrum(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="not finite"):
        Spectrum(np.array([[1.0, np.nan]]))
    a = rng.normal(size=(5, 2))
    gap.check_shared([a, a.copy()])
    for other in (a[:4], a + 1e-9):
        with pytest.raises(ValueError, match=r"client 1 has anchors of shape .* that differ from those of client 0"):
            gap.check_shared([a, other])


@pytest.mark.slow
def test_ten_thousand_features_and_two_thousand_anchors(rng):
    """gamma, effective rank and the compilation within 4 GB: m x m and thin factors, never D x D."""
    assert gap.svd_bytes(2000, 10_000) < 4e9 < gap.svd_bytes(20_000, 20_000)
    X = features("fourier", 2000, 10_000, rng)
    began = time.process_time()
    anchors = Spectrum(X)
    W = anchors.solve(rng.normal(size=(2000, 2)), 1e-2)
    assert time.process_time() - began < 120
    assert W.shape == (10_000, 2)
    assert 0 < anchors.effective_rank(1e-2) < 2000
    assert anchors.gamma > 0
