"""Robust estimates of location in numbers worked out by hand: who is cut, who is kept, and at which limit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fedqhd.federation.location import (
    centred,
    geometric_median,
    median,
    multi_krum,
    near_the_centre,
    real_rows,
    trimmed_mean,
    values_and_advantages,
    weiszfeld,
)


def line(*points):
    """Clients that report one number each."""
    return np.array(points, float)[:, None]


def test_arrays_become_real_rows_in_order():
    P = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(real_rows(P), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    np.testing.assert_array_equal(real_rows(np.asfortranarray(P)), real_rows(P))
    assert real_rows(P.astype(np.float32)).shape == (2, 6)
    np.testing.assert_array_equal(real_rows(np.array([[1 + 2j, 3 + 4j], [5j, 6]])), [[1, 2, 3, 4], [0, 5, 6, 0]])


def test_each_coordinate_is_estimated_by_itself():
    """Decoys: the largest number of a client is beside its smallest one."""
    P = np.array([[1.0, 90], [2, 50], [9, 10], [4, 70], [3, 20]])
    np.testing.assert_array_equal(median(P), [3, 50])
    np.testing.assert_array_equal(centred(P), P - [3, 50])
    np.testing.assert_allclose(trimmed_mean(P), [3, 140 / 3], rtol=1e-15)


@pytest.mark.parametrize(
    ("points", "due"),
    [
        ((5,), 5), ((1, 5), 3), ((1, 2, 9), 2), ((1, 2, 4, 90), 3), ((1, 2, 4, 8, 90), 14 / 3),
        ((-90, 1, 2, 3, 4, 95), 2.5),  # 1.2 of six: two at either end
        ((-90, -80, 1, 2, 3, 4, 5, 6, 95, 99), 3.5),
    ],
)  # fmt: skip
def test_a_fifth_is_cut_at_either_end_rounded_up_and_something_remains(points, due):
    assert trimmed_mean(line(*points)) == pytest.approx(due)


def test_the_geometric_median_of_a_line_is_its_middle_client_and_of_a_cross_its_centre():
    assert geometric_median(line(0, 1, 5, 6, 100)) == pytest.approx(5, abs=1e-2)
    cross = np.array([[14.0, 20], [10, 21], [6, 20], [10, 19]])  # Fermat: where the diagonals meet
    np.testing.assert_allclose(geometric_median(cross), [10, 20], atol=1e-9)
    u, d = weiszfeld(cross)
    np.testing.assert_allclose(d, [4, 1, 4, 1], atol=1e-9)
    np.testing.assert_allclose(u, [0.1, 0.4, 0.1, 0.4], atol=1e-9)  # inversely to the distance
    small = cross * 1e-6
    np.testing.assert_allclose(weiszfeld(small)[1], [4e-6, 1e-6, 4e-6, 1e-6], atol=1e-15)


@pytest.mark.parametrize("N", [1, 2, 5])
def test_of_equal_clients_all_have_the_same_share_and_no_distance(N):
    u, d = weiszfeld(np.full((N, 3), 7.0))
    np.testing.assert_array_equal(u, np.full(N, 1 / N))
    np.testing.assert_array_equal(d, np.zeros(N))
    np.testing.assert_allclose(geometric_median(np.full((N, 3), 7.0)), [7, 7, 7])


def test_the_memory_of_a_fleet_grows_with_its_size_and_not_with_the_square():
    """Of 3000 clients, a matrix of all pairs takes 72 MB, and everything else less than 1 MB."""
    P = np.random.default_rng(0).normal(size=(3000, 2))
    tracemalloc.start()
    weiszfeld(P)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_values_are_means_over_actions_and_advantages_what_remains():
    Q = np.array([[[1.0, 3], [10, 20]], [[0.0, 0], [5, 7]]])
    parts = values_and_advantages([Q, np.array([[4.0, 8], [1, 2]])])
    # An array without actions, such as a vector of each client, is all value.
    np.testing.assert_array_equal(parts["values"], [[2, 15, 4, 8], [0, 6, 1, 2]])
    np.testing.assert_array_equal(parts["advantages"], [[-1, 1, -5, 5, 0, 0], [0, 0, -1, 1, 0, 0]])
    assert list(parts) == ["values", "advantages"]


def opinions(values, advantages):
    """Q (N, 1, 2) of clients with these values and advantages."""
    return [np.stack([np.array([[v + a, v - a]]) for v, a in zip(values, advantages, strict=True)])]


LINE = (-2.0, -1.0, 0.0, 1.0)
"""With a fifth client further out, the median is 0 and the distances are 2, 1, 0, 1 and that of the fifth; the median
distance is 1."""


@pytest.mark.parametrize(
    ("values", "advantages", "kept"),
    [(9.9, 0.5, True), (10.1, 0.5, False), (0.5, 2.45, True), (0.5, 2.55, False)],
)
def test_a_client_may_be_ten_median_distances_off_in_values_and_two_and_a_half_in_advantages(values, advantages, kept):
    mask = near_the_centre(opinions([*LINE, values], [*LINE, advantages]))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, [True] * 4 + [kept])


def test_tolerances_can_be_given():
    far = opinions([*LINE, 4.0], [*LINE, 2.0])
    assert near_the_centre(far).all()
    assert not near_the_centre(far, {"values": 3.0, "advantages": 9.0})[4]
    assert not near_the_centre(far, {"values": 9.0, "advantages": 1.5})[4]
    # At the limit: the median distance is 1.5, and whoever is that far off is kept.
    spread = opinions([-3.0, -1, 0, 1.5, 4], [0.0] * 5)
    np.testing.assert_array_equal(near_the_centre(spread, {"values": 1.0, "advantages": 1.0}), [0, 1, 1, 1, 0])


def test_as_long_as_most_clients_are_identical_nobody_is_left_out():
    """They have learned nothing yet. Half of them, or two of five, are not most."""

    def kept(*advantages):
        return near_the_centre([np.array(advantages)[:, None, None] * np.array([1.0, -1])])

    np.testing.assert_array_equal(kept(3.0, 3, 3, 4, 102), [True] * 5)
    assert kept(3.0, 3, 3, 4, 102).dtype == bool
    np.testing.assert_array_equal(kept(-1.0, 0, 0, 99), [True, True, True, False])
    np.testing.assert_array_equal(kept(-1.0, 0, 0, 1, 99), [True, True, True, True, False])
    # Identical in one coordinate is not identical.
    P = np.array([[0.0, -1], [0, -0.5], [0, 0], [0, 0.5], [0, 99]])[:, None]
    np.testing.assert_array_equal(near_the_centre([P]), [True] * 4 + [False])


def test_krum_scores_by_the_nearest_n_minus_f_minus_2_and_leaves_out_f():
    """Seven clients, f = 2. The sums of the three smallest squared distances are 139, 109, 369, 266, 201, 241 and 161.

    With two, four or all neighbours, or without the nearest one, others would be left out.
    """
    np.testing.assert_array_equal(multi_krum([line(10, 13, 38, 21, 34, 7, 30)]), [1, 1, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(("N", "left_out"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 1), (7, 2), (8, 2), (9, 3)])
def test_krum_leaves_out_as_many_as_may_lie(N, left_out):
    kept = multi_krum([line(*range(N - left_out), *(1000 * 2**k for k in range(left_out)))])
    assert kept.dtype == bool
    np.testing.assert_array_equal(kept, np.arange(N) < N - left_out)


def test_krum_sees_all_arrays_and_of_equal_clients_the_first():
    apart = [line(0, 0, 0, 0, 0), line(1, 1, 9, 1, 1)]
    np.testing.assert_array_equal(multi_krum(apart), [1, 1, 0, 1, 1])
    for N in (5, 40):
        np.testing.assert_array_equal(multi_krum([np.full((N, 2), 3.0)]), np.arange(N) < N - (N - 3) // 2)
    # Of 40 clients at 0, 1 and 2 in turn, 22 are kept: the 14 at 0, of whose 20 neighbours 7 are elsewhere, and the
    # first of the others, each of whom has 8 neighbours elsewhere.
    k = np.arange(40)
    np.testing.assert_array_equal(multi_krum([line(*(k % 3))]), (k % 3 == 0) | (k < 12))


def test_rounding_far_from_zero_does_not_decide():
    """At 1e9, numbers that differ by 1e-3 have no digits left in their squares."""
    near = line(-2e-3, -1e-3, 0.0, 1e-3, 1.0) + 1e9
    np.testing.assert_array_equal(multi_krum([near]), [1, 1, 1, 1, 0])
    assert geometric_median(near) - 1e9 == pytest.approx(0, abs=1e-3)
