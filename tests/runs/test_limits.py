"""What a run needs is counted before anything is played: images are refused, small grids are not."""

from __future__ import annotations

import pytest

import fedqhd
from conftest import DENSE, tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.envs.make import spaces_of
from fedqhd.runs import limits
from fedqhd.runs.build import build, check_environment
from own_things import Screen


@pytest.fixture
def free(monkeypatch):
    """Sets the memory that is free, in bytes."""
    return lambda amount: monkeypatch.setattr(limits, "free_memory", lambda: int(amount))


@pytest.mark.parametrize("method", ["fedqhd", "fedavg-dqn"])
def test_an_image_is_refused_before_it_is_played(method, tmp_path, monkeypatch):
    monkeypatch.setattr(Screen, "played", False)
    with pytest.raises(FedQHDError, match=r"Screen' has observations of 100,800 variables, .* 4,096 .*: .* wraps"):
        fedqhd.train(tiny(tmp_path / "run", env="own_things:Screen", method=method))
    assert not Screen.played
    assert not (tmp_path / "run").exists()


def test_a_small_grid_is_accepted(tmp_path):
    assert spaces_of("MinAtar/Breakout-v0").n == 400
    check_environment(tiny(tmp_path, env="MinAtar/Breakout-v0", replay_size=10_000, rollout_steps=5000), range(2))


# 400 variables: 4 bytes each in the states and next states of two clients, 4 times 8 in every random step; 4 MB more in
# states that features are measured on.
STATES = {"clients": 2, "replay_size": 5000, "rollout_steps": 1000, "dims": [1], "features": "recompute"}
REPLAY, ROLLOUT = 2 * 2 * 4 * 400 * 5000, 8 * 4 * 400 * 1000


@pytest.mark.parametrize("method", ["fedqhd", "fedavg-dqn"])
def test_the_states_count(method, tmp_path, free):
    c = tiny(tmp_path, env="MinAtar/Breakout-v0", method=method, **STATES)
    free(REPLAY + ROLLOUT - 1)
    with pytest.raises(FedQHDError, match=r"replay_size=5000.* and 400 variables .* need 0\.049 GB .*: choose smaller"):
        check_environment(c, range(2))
    free(1.2 * (REPLAY + ROLLOUT))
    check_environment(c, range(2))
    check_environment(tiny(tmp_path, env="MinAtar/Breakout-v0", learner="online", **STATES), range(2))


def test_anchors_count(tmp_path, free):
    c = tiny(tmp_path, setting="heterogeneous", anchors=1_000_000, rollout_steps=100)
    free(8 * 4 * 2_000_000)
    with pytest.raises(FedQHDError, match=r"anchors=1000000"):
        check_environment(c, range(2))


@pytest.mark.parametrize("kind", DENSE)
def test_the_encoder_counts_as_much_as_it_takes(kind, tmp_path, free):
    c = tiny(tmp_path, learner="online", encoder=[kind], dims=[5000], rollout_steps=100)
    clients, _ = build(c)
    taken = sum(sum(x.nbytes for x in client.agent.encoder.arrays.values()) for client in clients)
    free(0.9 * taken)
    with pytest.raises(FedQHDError, match=r"dims=\[5000\], .* dimensions up to \d+ fit"):
        check_environment(c, range(2))
