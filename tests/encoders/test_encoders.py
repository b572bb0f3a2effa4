"""Encoders: bounded, seeded, fingerprinted, saved whole, and as close to their kernel as theory says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedqhd.core.errors import FedQHDError
from fedqhd.encoders import ENCODERS, ComplexFourier, RandomFourier, Symbolic, load_encoder
from fedqhd.envs.scaling import SPAN

KINDS = sorted(name for name, kind in ENCODERS.items() if not kind.is_sparse)


def sample(kind, D=200, sigma=1.3, seed=0, n=4):
    return ENCODERS[kind].sample(n, D, sigma, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
@given(s=npst.arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32)))
def test_norm_is_at_most_one(kind, s):
    X = sample(kind)(s)
    # The bound is exact in real numbers; 1e-12 is rounding of a sum of 200 squares.
    assert np.all(np.linalg.norm(X, axis=1) <= 1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_kernel_converges_at_the_root_of_D(kind):
    """RMS error of the empirical kernel falls as D^-1/2: the log-log slope is -0.5."""
    rng = np.random.default_rng(1)
    s, t = rng.uniform(-2, 2, (2, 40, 4))
    dims, sigma = [64, 256, 1024, 4096], 1.3
    limit = ENCODERS[kind].limit_kernel(s, t, sigma)
    error = []
    for D in dims:
        squares = []
        for seed in range(12):
            e = sample(kind, D, sigma, seed)
            squares.append((np.real(np.sum(e(s) * e(t).conj(), axis=1)) - limit) ** 2)
        error.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(dims), np.log(error), 1)[0]
    # 480 squared errors a point leave a few per cent of noise in each, about 0.03 in the slope.
    assert slope == pytest.approx(-0.5, abs=0.08)


def test_limit_kernels_by_hand():
    zero, one = np.zeros((1, 2)), np.array([[1.0, 0.0]])
    assert RandomFourier.limit_kernel(zero, one, 0.5) == pytest.approx(np.exp(-2) / 2)
    assert ComplexFourier.limit_kernel(zero, one, 0.5) == pytest.approx(np.exp(-2))
    # n=2: variables agree in one (1) and differ by 1 in the other (e^-2): (1 + e^-2 + e^-2) / 9
    assert Symbolic.limit_kernel(zero, one, 0.5) == pytest.approx((1 + 2 * np.exp(-2)) / 9)


def test_symbolic_is_bound_permuted_and_bundled():
    """The encoding of a state, put together by hand from the item memory."""
    e = sample("symbolic", D=50, n=3)
    items = e.arrays["items"].astype(int)
    step = 2 * SPAN / (items.shape[1] - 1)
    levels = [10, 64, 128]
    s = np.array([[-SPAN + step * k for k in levels]])
    bound = [items[j, k] for j, k in enumerate(levels)]
    by_hand = (bound[0] + bound[1] + bound[2] + bound[0] * bound[1] * bound[2]) / (4 * np.sqrt(50))
    np.testing.assert_allclose(e(s)[0], by_hand, atol=1e-15)
    # One level memory serves all variables: undo role and permutation, and they coincide up to a sign per component.
    undone = items[1] * items[1][0]
    np.testing.assert_array_equal(np.roll(undone, -1, axis=1), items[0] * items[0][0])


def test_seeds_and_fingerprints(encoder):
    again = type(encoder).sample(4, 200, 1.3, np.random.default_rng(7))
    other = type(encoder).sample(4, 200, 1.3, np.random.default_rng(8))
    assert encoder.fingerprint() == again.fingerprint() != other.fingerprint()
    changed = {k: v.copy() for k, v in encoder.arrays.items()}
    first = next(iter(changed))
    changed[first].flat[0] *= -1
    assert type(encoder)(**changed).fingerprint() != encoder.fingerprint()


def test_save_and_load(encoder, tmp_path, rng):
    encoder.save(tmp_path / "e.npz")
    loaded = load_encoder(tmp_path / "e.npz")
    s = rng.normal(size=(5, 4))
    assert type(loaded) is type(encoder)
    np.testing.assert_array_equal(loaded(s), encoder(s))
    assert loaded.fingerprint() == encoder.fingerprint()


def test_arrays_cannot_be_changed(encoder):
    with pytest.raises(ValueError, match="read-only"):
        next(iter(encoder.arrays.values()))[0] = 0


@pytest.mark.parametrize(("n", "D", "sigma"), [(4, 0, 1.0), (0, 5, 1.0), (4, 5, 0.0), (4, 5, float("nan"))])
def test_impossible_encoders_are_refused(n, D, sigma):
    with pytest.raises(FedQHDError, match=r"D=0|n=0|sigma="):
        RandomFourier.sample(n, D, sigma, np.random.default_rng(0))


def test_wrong_states_are_refused(encoder):
    with pytest.raises(FedQHDError, match=r"\(3, 2\).*4 state variables"):
        encoder(np.zeros((3, 2)))
