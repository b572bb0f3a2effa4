"""What the geometry of features says about step sizes."""

from __future__ import annotations

import numpy as np
import pytest

from fedqhd.agents.td import q_values, semi_gradient, td_error
from fedqhd.encoders import ENCODERS
from fedqhd.linalg.geometry import largest_eigenvalue, normalised_step


@pytest.mark.parametrize(("m", "D"), [(300, 40), (40, 300)])
def test_largest_eigenvalue_from_either_side(m, D, rng):
    X = rng.normal(size=(m, D))
    assert largest_eigenvalue(X) == pytest.approx(np.linalg.eigvalsh(X.T @ X / m)[-1])


def test_wide_kernels_have_parallel_features(rng):
    """With a large bandwidth all features are nearly parallel, and lambda_max approaches ||Phi||^2 = 1/2."""
    s = rng.normal(size=(200, 3))
    narrow, wide = (ENCODERS["fourier"].sample(3, 500, sigma, rng)(s) for sigma in (0.3, 100.0))
    assert largest_eigenvalue(narrow) < 0.1
    assert largest_eigenvalue(wide) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("kind", sorted(ENCODERS))
@pytest.mark.parametrize(("fraction", "stable"), [(1.8, True), (2.2, False)])
def test_two_is_the_edge_of_stability(kind, fraction, stable, rng):
    """Full-batch regression with eta B lambda_max on either side of 2."""
    X = ENCODERS[kind].sample(2, 60, 1.0, rng)(rng.normal(size=(50, 2)))
    y, a = rng.normal(size=50), np.zeros(50, int)
    eta = normalised_step(fraction, 50, X)
    W = np.zeros((60, 1), X.dtype)
    errors = []
    for _ in range(300):
        delta = td_error(y, q_values(X, W), a)
        errors.append(float(delta @ delta))
        W = semi_gradient(W, X, a, delta, eta)
    assert (errors[-1] < errors[0]) == stable


def test_a_single_step_overshoots_by_no_more_than_a_batch(rng):
    """One-hot states: lambda_max of 50 of them is 1/50, and a step normalised by it alone would be 50 times too far."""
    X = np.eye(50)
    assert normalised_step(0.8, 1, X) == 0.8
    assert normalised_step(0.8, 100, X) == pytest.approx(0.4)
