"""The one solve: its identities, its optimality, and what it may not see."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge as SklearnRidge

from fedqhd.linalg.ridge import Ridge, compile_teacher, objective, stacked


def problem(m, D, seed=0, kind=float, A=2, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, D)) * scale
    if kind is complex:
        X = X + 1j * rng.normal(size=(m, D)) * scale
    return X, rng.normal(size=(m, A))


@pytest.mark.parametrize(("m", "D"), [(60, 20), (20, 60), (30, 30)])
@pytest.mark.parametrize("lam", [1e-3, 1.0])
def test_primal_equals_dual(m, D, lam):
    X, Q = problem(m, D)
    primal = scipy.linalg.solve(X.T @ X + lam * np.eye(D), X.T @ Q, assume_a="pos")
    dual = X.T @ scipy.linalg.solve(X @ X.T + lam * np.eye(m), Q, assume_a="pos")
    # Condition number at most 200/1e-3: ten digits are left of sixteen.
    np.testing.assert_allclose(primal, dual, atol=1e-9)
    np.testing.assert_allclose(compile_teacher(X, Q, lam), primal, atol=1e-9)
    assert Ridge(X, lam).primal == (m >= D)


@pytest.mark.parametrize(("m", "D"), [(80, 20), (20, 80)])
def test_agrees_with_scikit_learn(m, D):
    X, Q = problem(m, D)
    theirs = SklearnRidge(alpha=0.3, fit_intercept=False, solver="cholesky").fit(X, Q).coef_.T
    np.testing.assert_allclose(compile_teacher(X, Q, 0.3), theirs, atol=1e-10)


@pytest.mark.parametrize(("m", "D"), [(80, 20), (20, 80), (30, 25)])
def test_complex_ridge_is_real_ridge_on_stacked_parts(m, D):
    X, Q = problem(m, D, kind=complex)
    lam = 0.1
    W = compile_teacher(X, Q, lam)
    real = compile_teacher(np.hstack([X.real, -X.imag]), Q, lam)
    np.testing.assert_allclose(W, real[:D] + 1j * real[D:], atol=1e-12)
    # ... and it is the dual with Re(G): W = X^H (Re(X X^H) + lam I)^-1 Q.
    dual = X.conj().T @ np.linalg.solve((X @ X.conj().T).real + lam * np.eye(m), Q)
    np.testing.assert_allclose(W, dual, atol=1e-9)


def test_the_papers_complex_form_does_not_minimise_its_own_objective():
    """Negative control: with the whole complex Gram matrix the imaginary part of X W is penalised too."""
    X, Q = problem(20, 40, kind=complex)
    lam = 1.0
    paper = X.conj().T @ np.linalg.solve(X @ X.conj().T + lam * np.eye(20), Q)
    assert objective(X, paper, Q, lam) > 1.01 * objective(X, compile_teacher(X, Q, lam), Q, lam)


@pytest.mark.parametrize("kind", [float, complex])
def test_solution_beats_a_thousand_perturbations(kind):
    X, Q = problem(30, 50, kind=kind)
    lam, rng = 0.05, np.random.default_rng(1)
    W = compile_teacher(X, Q, lam)
    best = objective(X, W, Q, lam)
    for size in np.geomspace(1e-4, 1, 1000):
        nudge = rng.normal(size=W.shape) * size
        if kind is complex:
            nudge = nudge + 1j * rng.normal(size=W.shape) * size
        assert objective(X, W + nudge, Q, lam) > best


@pytest.mark.parametrize("kind", [float, complex])
def test_residual_invisibility(kind):
    """What the anchors' features cannot express compiles to nothing, at any state."""
    X, Q = problem(60, 15, kind=kind)
    S = stacked(X)
    outside = Q - S @ np.linalg.lstsq(S, Q, rcond=None)[0]
    assert np.linalg.norm(outside) > 1  # there is something to be blind to
    assert np.abs(compile_teacher(X, outside, 1e-2)).max() < 1e-12


def test_invisibility_needs_the_real_span_for_complex_features():
    """Negative control: what is outside the complex span of X may be inside its real span."""
    X, Q = problem(60, 15, kind=complex)
    U = np.linalg.svd(X, full_matrices=False)[0]
    outside = (Q - U @ (U.conj().T @ Q)).real
    assert np.abs(compile_teacher(X, outside, 1e-2)).max() > 1e-3


def test_without_ridge_it_is_the_pseudo_inverse():
    X, Q = problem(40, 20)
    X[:, 10:] = X[:, :10]  # rank 10: the normal equations are singular
    np.testing.assert_allclose(compile_teacher(X, Q, 0.0), np.linalg.pinv(X) @ Q, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 40), D=st.integers(1, 40), rank=st.integers(1, 40),
    scale=st.sampled_from([1e-8, 1e-4, 1.0, 1e4, 1e8]), lam=st.sampled_from([0.0, 1e-12, 1e-4, 1.0]),
    seed=st.integers(0, 99),
)  # fmt: skip
@example(m=2, D=3, rank=1, scale=1.0, lam=1e-12, seed=0)  # values out of reach, and a lam far below the dual's rounding
def test_any_shape_rank_and_scale_is_stationary(m, D, rank, scale, lam, seed):
    """The gradient X^T (X W - Q) + lam W vanishes, measured against the size of its terms."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, min(rank, m, D))) @ rng.normal(size=(min(rank, m, D), D)) * scale
    Q = rng.normal(size=(m, 2))
    W = compile_teacher(X, Q, lam)
    assert np.isfinite(W).all()
    gradient = X.T @ (X @ W - Q) + lam * W
    size = np.linalg.norm(X, 2) * (np.linalg.norm(X, 2) * np.linalg.norm(W) + np.linalg.norm(Q)) + lam * np.linalg.norm(
        W
    )
    assert np.linalg.norm(gradient) <= 1e-9 * size


@pytest.mark.parametrize("lam", [-1.0, float("nan"), float("inf")])
def test_impossible_lam_is_refused(lam):
    with pytest.raises(ValueError, match="lam="):
        Ridge(np.eye(2), lam)


@pytest.mark.parametrize(("m", "D"), [(40, 10), (10, 40)])
@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_single_precision_is_solved_in_double(m, D, lam):
    """Anchor features are float32; their Gram matrix in float32 would lose half of the digits."""
    draw = np.random.default_rng(5)
    X, Q = (draw.normal(size=(m, k)).astype(np.float32) for k in (D, 2))
    W = compile_teacher(X, Q, lam)
    assert W.dtype == np.float64
    np.testing.assert_array_equal(W, compile_teacher(X.astype(np.float64), Q.astype(np.float64), lam))


def test_the_objective_by_hand():
    """X W = (1, 2), so the misfit is 4 + 1 = 5; W - W0 = 1 - 4 = -3, so the penalty is 0.5 * 9."""
    X, W, Q = np.array([[1.0], [2.0]]), np.array([[1.0]]), np.array([[3.0], [1.0]])
    assert objective(X, W, Q, 0.5, np.array([[4.0]])) == 9.5
    assert objective(X, W, Q, 0.5) == 5.5
    assert objective(1j * X, -1j * W, Q, 0.5, np.array([[2j]])) == 9.5  # |-1j - 2j| = 3


def test_features_of_nothing_compile_to_nothing():
    for shape in ((4, 2), (2, 4)):
        np.testing.assert_array_equal(
            compile_teacher(np.zeros(shape), np.ones((shape[0], 3)), 0.0), np.zeros((shape[1], 3))
        )


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("shape", [(40, 20), (20, 40)])
def test_directions_within_rounding_error_are_left_out_at_any_scale(shape, scale):
    """Of the singular values 1, ..., 1, 1e-12, 1e-18 relative to the largest, only the last is noise."""
    draw, k = np.random.default_rng(3), min(shape)
    U, V = (np.linalg.qr(draw.normal(size=(n, k)))[0] for n in shape)
    sizes = np.append(np.ones(k - 2), [1e-12, 1e-18]) * scale
    Q = draw.normal(size=(shape[0], 2))
    W = compile_teacher((U * sizes) @ V.T, Q, 0.0)
    due = V[:, :-1] @ ((U[:, :-1].T @ Q) / sizes[:-1, None])
    # The small direction dominates, and is known to four digits: 1e-16 / 1e-12.
    np.testing.assert_allclose(W * scale, due * scale, atol=1e-2 * np.abs(due * scale).max())


def test_a_usual_ridge_is_solved_by_cholesky_and_one_lost_in_rounding_is_not():
    X = np.random.default_rng(0).normal(size=(30, 10))
    assert Ridge(X, 1e-3)._svd is None
    assert Ridge(X.T, 1.0)._svd is None
    assert Ridge(X, 1e-5)._svd is None  # the limit of the dual, 1e-6 trace(G), would be 3e-4
    assert Ridge(X, 1e-14)._svd is not None
    assert Ridge(X.T, 1e-5)._svd is not None
