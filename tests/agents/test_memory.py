"""Memories of transitions by hand: what they keep, overwrite, drop, save and restore, and which states they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

from conftest import same
from fedqhd.agents.encoded import LastEncoded
from fedqhd.agents.memory import Memory, Replay, Trajectories, _smallest
from fedqhd.core.protocols import Transition
from fedqhd.encoders import ENCODERS

D = 24
STATES = np.arange(40, dtype=np.float32).reshape(20, 2) / 10


@pytest.fixture
def encoded(rng):
    return LastEncoded(ENCODERS["fourier"].sample(2, D, 1.0, rng))


def step(k, then=None):
    """The transition from state k to the next one, or to state `then`."""
    return Transition(STATES[k], k % 3, k / 4, 0.9, STATES[k + 1 if then is None else then])


def test_a_new_memory_is_empty():
    memory = Memory(5, 2)
    assert memory.size == 0
    assert memory.s.shape == (5, 2)
    assert Replay(5, 2).s_next.dtype == np.float32
    assert Trajectories(5, 2).first.dtype == np.bool_
    assert Replay(5, 2, object()).X.shape == Trajectories(5, 2, object()).X.shape == (0, 0)  # without features
    assert memory.X.shape == (0, 0)
    assert memory.scale == 1
    assert [getattr(memory, name).dtype for name in memory.COLUMNS] == [np.float32, np.int64, np.float32, np.float32]
    assert [v.shape for v in memory.state().values()] == [(0, 2), (0,), (0,), (0,)]
    assert all(not np.any(getattr(memory, name)) for name in memory.COLUMNS)


def test_features_are_stored_if_they_are_asked_for(encoded):
    assert Memory(5, 2, encoded).X.shape == (0, 0)
    assert Memory(5, 2, encoded, "recompute").X.dtype == np.float32
    assert Memory(5, 2, None, "float32").X.shape == (0, 0)
    whole, short = Replay(4, 2, encoded, "float32"), Replay(4, 2, encoded, "int8")
    assert (whole.X.shape, whole.X.dtype, whole.scale) == ((4, D), np.float32, 1)
    assert (short.X.shape, short.X.dtype) == ((4, D), np.int8)
    assert short.scale == np.float32(1 / (127 * np.sqrt(D)))
    assert short.scale.dtype == np.float32
    for k in range(6):
        for memory in (whole, short):
            row = memory.add(step(k))
            due = encoded.encoder.features(STATES[k][None])[0]
            np.testing.assert_allclose(
                memory.scale * memory.X[row], due, atol=1e-6 if memory is whole else memory.scale
            )
    for memory in (whole, short):
        again = Replay(4, 2, encoded, str(memory.X.dtype))
        again.restore(memory.state())
        assert same([again.X], [memory.X])


def test_a_ring_keeps_the_last_transitions_and_which_of_them_follow_each_other():
    memory = Replay(3, 2)
    rows = [memory.add(t) for t in (step(0), step(1), step(2, then=9), step(4), step(5))]
    assert rows == [0, 1, 2, 0, 1]
    assert memory.size == 3
    np.testing.assert_array_equal(memory.s, STATES[[4, 5, 2]])
    np.testing.assert_array_equal(memory.s_next, STATES[[5, 6, 9]])
    np.testing.assert_array_equal(memory.a, [1, 2, 2])
    np.testing.assert_array_equal(memory.r, np.array([1.0, 1.25, 0.5], np.float32))
    np.testing.assert_array_equal(memory.discount, np.full(3, 0.9, np.float32))
    assert memory.joined.tolist() == [True, False, False]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7])
def test_a_ring_goes_on_from_its_state(count):
    memory, again = Replay(3, 2), Replay(3, 2)
    moves = [step(0), step(1), step(2, then=9), step(9), step(10), step(3), step(4), step(5)]
    for t in moves[:count]:
        memory.add(t)
    state = memory.state()
    assert list(state) == ["s", "a", "r", "discount", "joined", "s_end", "at"]
    assert int(state["at"]) == count % 3
    assert len(state["s"]) == min(count, 3) == memory.size
    assert len(state["s_end"]) == min(count, 3) - memory.joined[: memory.size].sum()
    again.restore(state)
    assert again.size == memory.size
    for t in [None, *moves[count:], step(7)]:
        if t is not None:
            assert memory.add(t) == again.add(t)
        for name in (*Replay.COLUMNS, "s_next"):
            assert same([getattr(memory, name)[: memory.size]], [getattr(again, name)[: memory.size]]), name


def test_a_state_is_a_copy_in_the_smallest_types():
    memory = Replay(3, 2)
    memory.add(step(2))
    state = memory.state()
    assert state["a"].dtype == np.uint8
    assert state["s"].dtype == np.float32
    for value in state.values():
        value[...] = 1
    np.testing.assert_array_equal(memory.s[0], STATES[2])
    assert memory.a[0] == 2
    for values, dtype in (
        ([0, 255], "u1"),
        ([0, 256], "u2"),
        ([-1, 127], "i2"),
        ([-1, 300], "i4"),
        ([], "u1"),
    ):
        small = _smallest(np.array(values, np.int64))
        assert small.dtype == np.dtype(dtype)
        assert small.tolist() == values
    assert _smallest(np.ones(2, np.float32)).dtype == np.float32
    assert _smallest(np.ones(2, bool)).dtype == bool


def test_rows_are_drawn_from_the_filled_ones_alone():
    memory = Replay(50, 2)
    for k in range(3):
        memory.add(step(k))
    drawn = memory.sample(600, np.random.default_rng(1))
    assert len(drawn) == 600
    assert np.bincount(drawn, minlength=3).min() > 150
    assert drawn.max() == 2
    np.testing.assert_array_equal(drawn, (np.random.default_rng(1).random(600) * 3).astype(int))


def test_the_first_transition_follows_none():
    """Not even if its state is that of a row that was never written."""
    memory = Replay(3, 2)
    memory.add(Transition(np.zeros(2, np.float32), 0, 0.0, 0.9, STATES[1]))
    assert memory.joined.tolist() == [False] * 3
    memory.add(Transition(STATES[1], 0, 0.0, 0.9, STATES[2]))
    assert memory.joined.tolist() == [True, False, False]


@pytest.mark.parametrize("at", [-1, 3, 10**6])
def test_a_ring_does_not_go_on_outside_itself(at):
    memory = Replay(3, 2)
    memory.add(step(0))
    with pytest.raises(ValueError, match=f"^its memory of 3 rows goes on at row {at}$"):
        Replay(3, 2).restore({**memory.state(), "at": np.array(at)})
    for fine in (0, 2):
        Replay(3, 2).restore({**memory.state(), "at": np.array(fine)})


@pytest.mark.parametrize("name", ["s", "a", "r", "discount", "joined"])
def test_columns_of_other_lengths_are_refused(name):
    memory = Replay(3, 2)
    memory.add(step(0))
    memory.add(step(1))
    state = memory.state()
    with pytest.raises(ValueError, match=r"has the shape|could not|cannot"):
        Replay(3, 2).restore({**state, name: state[name][:1]})
    with pytest.raises(ValueError, match=r"has the shape"):
        Replay(1, 2).restore(state)  # a smaller memory


def test_the_column_that_does_not_fit_is_named():
    memory = Replay(3, 2)
    memory.add(step(0))
    memory.add(step(1))
    with pytest.raises(ValueError, match=r"^r has the shape \(1,\), and \(2,\) is needed$"):
        Replay(3, 2).restore({**memory.state(), "r": np.zeros(1, np.float32)})


def test_kernels_share_the_arrays_of_a_memory_and_what_they_count_is_taken_over(encoded):
    memory = Replay(3, 2, encoded, "int8")
    memory.add(step(0))
    ring = memory.ring()
    for name in (*Replay.COLUMNS, "s_next", "X"):
        assert getattr(ring, name) is getattr(memory, name), name
    assert ring.scale == memory.scale
    assert memory.counts(7, 5).tolist() == [1, 1, 7, 5]
    assert memory.take(np.array([2, 0, 8, 6])) == (8, 6)
    assert (memory.size, memory.counts(0, 0).tolist()) == (2, [2, 0, 0, 0])
    assert type(memory.size) is int


@pytest.mark.parametrize(
    ("kind", "actions", "due"),
    [
        (Replay, [0, 2], None), (Replay, [0, 3], "its memory has actions from 0 to 3, and there are 3"),
        (Replay, [-1, 2], "its memory has actions from -1 to 2, and there are 3"),
        (Trajectories, [-1, 2], None), (Trajectories, [-2, 2], "its memory has actions from -2 to 2, and there are 3"),
    ],
)  # fmt: skip
def test_actions_that_do_not_exist_are_refused(kind, actions, due):
    memory = kind(5, 2)
    memory.check_actions(1)  # an empty one has none
    memory.a[:2], memory.a[2:], memory.size = actions, 99, 2  # rows that are not filled do not count
    if due is None:
        memory.check_actions(3)
    else:
        with pytest.raises(ValueError, match=f"^{re.escape(due)}$"):
            memory.check_actions(3)


def fill(memory, episodes):
    """Add episodes of these lengths, one row for each step; the numbers of the rows are their rewards."""
    dropped, k = [], 0
    for length in episodes:
        for i in range(length):
            dropped.append(memory.add(STATES[k % 20], k % 3, float(k), 0.5, i == 0))
            k += 1
    return dropped


def test_trajectories_keep_their_order():
    memory = Trajectories(5, 2)
    assert fill(memory, [2, 3]) == [False] * 5
    assert memory.size == 5
    assert memory.r.tolist() == [0, 1, 2, 3, 4]
    assert memory.first.tolist() == [True, False, True, False, False]
    assert memory.a.tolist() == [0, 1, 2, 0, 1]
    assert memory.discount.tolist() == [0.5] * 5
    np.testing.assert_array_equal(memory.s, STATES[:5])
    again = Trajectories(5, 2)
    again.restore(memory.state())
    assert list(memory.state()) == ["s", "a", "r", "discount", "first"]
    assert all(same([getattr(again, name)], [getattr(memory, name)]) for name in memory.COLUMNS)


@pytest.mark.parametrize(
    ("capacity", "episodes", "rows", "first"),
    [
        (8, [2, 2, 2, 2, 1], [2, 3, 6, 7, 8], [0, 2, 4]),  # every second episode, but not the newest one
        (8, [2, 2, 2, 3], [2, 3, 6, 7, 8], [0, 2]),
        (8, [3, 2, 3, 1], [0, 1, 2, 5, 6, 7, 8], [0, 3, 6]),  # 6 of 8 rows remain, which is not too many
        (8, [4, 1, 3, 1], [4, 5, 6, 7, 8], [0, 1, 4]),  # 7 would: the older half of the rows goes instead
        (8, [2, 2, 2, 1, 2], [0, 1, 4, 5, 7, 8], [0, 2, 4]),  # the newest has one row so far
        (8, [9], [4, 5, 6, 7, 8], [0]),  # what is left of a cut episode is one
        (7, [8], [3, 4, 5, 6, 7], [0]),
        (8, [1, 7, 1], [4, 5, 6, 7, 8], [0, 4]),
    ],
)  # fmt: skip
def test_a_full_memory_drops_whole_episodes(encoded, capacity, episodes, rows, first):
    memory = Trajectories(capacity, 2, encoded, "float32")
    assert fill(memory, episodes) == [False] * capacity + [True]
    assert memory.size == len(rows)
    assert memory.r[: memory.size].tolist() == rows
    assert np.flatnonzero(memory.first[: memory.size]).tolist() == first
    np.testing.assert_array_equal(memory.s[: memory.size], STATES[rows])
    assert memory.a[: memory.size].tolist() == [k % 3 for k in rows]
    np.testing.assert_allclose(memory.X[: memory.size], encoded.encoder.features(STATES[rows]), atol=1e-6)


def test_a_memory_without_features_drops_episodes_too():
    memory = Trajectories(8, 2)
    fill(memory, [2, 2, 2, 3])
    assert memory.r[: memory.size].tolist() == [2, 3, 6, 7, 8]
    assert memory.X.shape == (0, 0)
