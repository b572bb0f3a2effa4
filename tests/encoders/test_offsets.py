"""Encoders of grids: what their items are, that kernels find the same ones, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_arrays
from fedqhd.encoders import Offsets, Triples, draw_encoder, load_encoder
from fedqhd.encoders.offsets import LARGEST, items
from fedqhd.linalg.geometry import normalised_step
from fedqhd.linalg.ridge import Ridge

GRID = (4, 5, 3)
BIG = 2**22
"""So many components that few of a few hundred items share one."""
CELLS = hnp.arrays(np.bool_, GRID, elements=st.booleans())


def encoder(kind=Offsets, D=BIG, seed=0, grid=GRID):
    return kind.for_grid(grid, D, np.random.default_rng(seed))


def grid(*cells, shape=GRID):
    """A state with these cells (row, column, channel) active."""
    z = np.zeros(shape, np.float32)
    for cell in cells:
        z[cell] = 1
    return z.reshape(-1)


def count(kind, z):
    return encoder(kind).matrix(z[None]).nnz


def test_items_by_hand():
    """A player (channel 0) at (1, 1) and a ball (channel 2) with its trail (channel 1) beside it."""
    z = grid((1, 1, 0), (2, 3, 2), (1, 3, 1))
    assert items(z, GRID, 1) == {(1, 1, 0), (2, 3, 2), (1, 3, 1)}
    pairs = {(0, 2, 1, 2), (0, 1, 0, 2), (1, 2, 1, 0)}  # channels, and how far down and right the second one lies
    assert items(z, GRID, 2) == items(z, GRID, 1) | pairs
    # Only ball and trail are neighbours. From the trail, the player is two columns to the left.
    assert items(z, GRID, 3) == items(z, GRID, 2) | {(1, 2, 1, 0, 0, 0, -2)}
    assert count(Offsets, z) == 6
    assert count(Triples, z) == 7


def test_a_pair_is_the_same_item_wherever_it_lies_and_counts_once():
    here, there = grid((0, 0, 0), (1, 2, 1)), grid((2, 1, 0), (3, 3, 1))
    X = encoder().matrix(np.stack([here, there]))
    assert (X[[0]] * X[[1]]).nnz == 1
    # Three in a row: 3 cells, and the offsets (0, 1), twice, and (0, 2).
    assert count(Offsets, grid((0, 0, 0), (0, 1, 0), (0, 2, 0))) == 3 + 2
    # The other way round it is another item, unless both have one channel.
    assert (0, 1, 0, 2) in items(grid((0, 0, 0), (0, 2, 1)), GRID, 2)
    assert (0, 1, 0, -2) in items(grid((0, 2, 0), (0, 0, 1)), GRID, 2)


@pytest.mark.parametrize("kind", [Offsets, Triples])
@given(a=CELLS, b=CELLS)
def test_kernels_switch_on_as_many_components_as_there_are_items(kind, a, b):
    """The kernel against plain sets. A few items may share a component, so a count may be lower, but hardly so."""
    s, t = (np.float32(x).reshape(-1) for x in (a, b))
    S, T = items(s, GRID, kind.order), items(t, GRID, kind.order)
    X = encoder(kind).matrix(np.stack([s, t]))
    for row, found in zip((0, 1), (S, T), strict=True):
        assert len(found) - 2 - len(found) ** 2 / BIG <= X[[row]].nnz <= len(found)
    inner = (X[[0]] @ X[[1]].T).toarray().item()
    limit = len(S & T) / np.sqrt(len(S) * len(T)) if S and T else 0.0
    assert inner == pytest.approx(limit, abs=0.02)


@pytest.mark.parametrize("D", [1, 7, 300])
@given(cells=CELLS)
def test_the_norm_is_one_however_many_items_collide(D, cells):
    z = np.float32(cells).reshape(1, -1)
    X = encoder(Triples, D)(z)
    assert np.linalg.norm(X) == pytest.approx(1.0 if cells.any() else 0.0)
    assert X.shape == (1, D)
    assert len(np.unique(X[X > 0])) <= 1


def test_components_are_uniform():
    """Every item of a grid by itself: 2,000 cells into 50 components, 40 each on average."""
    e = encoder(D=50, grid=(20, 20, 5))
    found = [e.matrix(z[None]).indices.item() for z in np.eye(2000, dtype=np.float32)]
    counts = np.bincount(found, minlength=50)
    # Chi-squared with 49 degrees of freedom: mean 49, standard deviation 10.
    assert np.sum((counts - 40) ** 2 / 40) < 49 + 4 * 10


def test_clients_have_hashes_of_their_own_and_files_keep_them(tmp_path):
    one, same, other = encoder(seed=1, D=500), encoder(seed=1, D=500), encoder(seed=2, D=500)
    z = grid((1, 1, 0), (2, 3, 2), (1, 3, 1))[None]
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    assert not np.array_equal(one(z), other(z))
    assert one.fingerprint() != Triples(**one.arrays).fingerprint()
    one.save(tmp_path / "encoder.npz")
    assert np.array_equal(load_encoder(tmp_path / "encoder.npz")(z), one(z))


def test_sizes_in_a_file_are_checked_before_anything_of_that_size_is_made(tmp_path):
    arrays = {**encoder(D=8).arrays, "size": np.array([2**60])}
    write_arrays(tmp_path / "encoder.npz", arrays, {"encoder": "offsets", "fingerprint": "0"})
    with pytest.raises(FedQHDError, match="from 1 to"):
        load_encoder(tmp_path / "encoder.npz")


def test_a_vector_is_no_grid_and_a_dimension_has_a_limit():
    with pytest.raises(FedQHDError, match="encodes grids, such as those of MinAtar"):
        draw_encoder("offsets", 4, 100, 1.0, np.random.default_rng(0), np.zeros((0, 4)))
    with pytest.raises(FedQHDError, match=f"1 to {LARGEST:,}"):
        encoder(D=LARGEST + 1)


@pytest.mark.parametrize("D", [40, 400])
def test_a_teacher_is_compiled_into_sparse_features_as_into_dense_ones(D):
    """Primal for D below the number of anchors, dual above it."""
    generator = np.random.default_rng(0)
    states = generator.random((100, 60)) < 0.15
    Q = generator.normal(size=(100, 2))
    e = encoder(D=D)
    sparse, dense = Ridge(e.matrix(states), 0.1).solve(Q), Ridge(e(states), 0.1).solve(Q)
    assert sparse == pytest.approx(dense, abs=1e-10)
    assert not np.allclose(sparse, 0)


@pytest.mark.parametrize("kind", [Offsets, Triples])
def test_the_limit_is_the_share_of_common_items(kind):
    """One place with channels 0, 1 and 3 of four active, and one with 1 and 3: 6 and 3 items, 3 of them common."""
    s, t = np.array([[1.0, 1, 0, 1], [0, 0, 0, 0]]), np.array([[0.0, 1, 0, 1], [0, 1, 0, 0]])
    limit = kind.limit_kernel(s, t, 1.0)
    more = kind.order == 3  # the place has one triple for each of its three pairs
    assert limit == pytest.approx([3 / np.sqrt((9 if more else 6) * 3), 0])
    e = kind.sample(4, BIG, 1.0, np.random.default_rng(0))
    assert np.sum(e(s) * e(t), axis=1) == pytest.approx(limit, abs=1e-9)


def test_a_step_is_normalised_by_sparse_features_as_by_dense_ones():
    states = np.random.default_rng(0).random((30, 60)) < 0.2
    for D in (20, 500):
        e = encoder(D=D)
        assert normalised_step(0.3, 32, e.matrix(states)) == pytest.approx(
            normalised_step(0.3, 32, e(states)), rel=1e-12
        )
    assert normalised_step(0.3, 1, encoder().matrix(states)) == pytest.approx(0.3)  # the norm of each row is 1
