"""Snapshots: what a class names as its state comes back, to the bit, and nothing else is needed."""

from __future__ import annotations

import numpy as np
import pytest

from fedqhd.agents.client import LocalClient
from fedqhd.core.errors import FedQHDError
from fedqhd.core.snapshot import Stateful
from fedqhd.envs.scaling import StateScaler


class Foreign:
    """An agent of a user's own: two methods, and no base class."""

    def __init__(self):
        self.x = 0.0

    def state(self):
        return {"x": np.array(self.x)}

    def restore(self, p):
        self.x = float(p["x"])


class Base(Stateful):
    STATE = ("_count", "share", "w", "_rng")

    def __init__(self, seed=0):
        self._count, self.share, self.w = 0, 0.5, np.zeros(3, np.float32)
        self.view = self.w[1:]
        self._rng = np.random.default_rng(seed)
        self.total = 0.0

    def restored(self):
        self.total = float(self.w.sum())


class Derived(Base):
    STATE = ("pairs", "part")
    OPTIONAL = ("maybe",)

    def __init__(self, seed=0):
        super().__init__(seed)
        self.pairs, self.part, self.maybe = [], Foreign(), None


def filled():
    thing = Derived()
    thing._count, thing.share, thing.pairs = 7, -np.inf, [(1.0, 0.9), (2.5, 0.0)]
    thing.w[:] = 1, 2, 3
    thing.part.x = 4.0
    thing._rng.random(5)
    return thing


def test_everything_that_is_named_comes_back():
    thing, copy = filled(), Derived(seed=1)
    copy.restore(thing.state())
    assert (copy._count, copy.share, copy.pairs, copy.part.x) == (7, -np.inf, [(1.0, 0.9), (2.5, 0.0)], 4.0)
    assert type(copy._count) is int
    assert type(copy.share) is float
    assert copy.maybe is None
    assert copy.total == 6.0  # derived anew
    assert copy._rng.random() == thing._rng.random()


def test_names_are_those_of_all_classes_without_underscores():
    assert set(filled().state()) == {"count", "share", "w", "rng", "pairs", "part.x"}


def test_arrays_are_restored_in_place_and_saved_as_copies():
    thing, copy = filled(), Derived()
    saved = thing.state()
    thing.w[:] = 0
    copy.restore(saved)
    assert copy.view.tolist() == [2, 3]
    copy.w[:] = 9
    assert saved["w"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("before", [None, np.ones(2)])
@pytest.mark.parametrize("after", [None, np.arange(5.0)])
def test_an_optional_array_comes_and_goes(before, after):
    thing, copy = Derived(), Derived()
    copy.maybe, thing.maybe = before, after
    copy.restore(thing.state())
    assert (copy.maybe is None) == (after is None)
    if after is not None:
        np.testing.assert_array_equal(copy.maybe, after)
        assert copy.maybe is not after


def test_an_empty_list_comes_back_empty():
    copy = filled()
    copy.restore(Derived().state())
    assert copy.pairs == []


def test_what_is_missing_is_noticed():
    saved = dict(filled().state())
    del saved["w"]
    with pytest.raises(FedQHDError, match=r"does not fit .*'w'"):
        Derived().restore(saved)


def test_a_client_takes_an_agent_of_the_users_own():
    scaler = StateScaler(np.zeros(1), np.ones(1), -np.ones(1), np.ones(1))
    clients = [LocalClient(0, Foreign(), [], scaler, gamma=0.9, seed=0) for _ in range(2)]
    clients[0].agent.x, clients[0].episodes = 3.0, 5
    saved = clients[0].state()
    assert saved["agent.x"] == 3.0
    clients[1].restore(saved)
    assert (clients[1].agent.x, clients[1].episodes) == (3.0, 5)
