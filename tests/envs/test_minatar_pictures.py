"""Pictures of MinAtar's games: a square for each cell, in the same places as in those of the package."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from PIL import Image

import fedqhd
from conftest import tiny
from fedqhd.envs.make import make_env
from fedqhd.envs.minatar import CELL, COLOURS, GAMES, picture
from fedqhd.report.play import WIDTH, play


@pytest.mark.parametrize("game", GAMES)
def test_a_picture_has_a_square_for_each_cell(game):
    env = make_env(f"MinAtar/{game}-v1", render_mode="rgb_array")
    env.reset(seed=1)
    for _ in range(10):
        env.step(0)
    image, grid = env.render(), env.unwrapped.game.state()
    assert image.shape == (10 * CELL, 10 * CELL, 3)
    assert image.dtype == np.uint8
    middles = image[CELL // 2 :: CELL, CELL // 2 :: CELL]
    for y, x in np.ndindex(10, 10):
        channels = np.flatnonzero(grid[y, x])
        assert tuple(middles[y, x]) == tuple(COLOURS[channels[-1] + 1] if len(channels) else (0, 0, 0))
        square = image[y * CELL + 1 : (y + 1) * CELL, x * CELL + 1 : (x + 1) * CELL]
        assert (square == middles[y, x]).all()


def test_the_channels_have_clearly_different_colours():
    assert len(COLOURS) == 1 + 10  # Seaquest has ten channels
    distances = [np.linalg.norm(a.astype(float) - b) for a, b in combinations(COLOURS, 2)]
    assert min(distances) > 80


@pytest.mark.parametrize("game", GAMES)
def test_the_same_cells_have_the_same_colour_as_in_the_pictures_of_the_package(game):
    """Its colours are others, but what it draws on top is on top."""
    from minatar.gym import BaseEnv

    theirs = BaseEnv(GAMES[game], render_mode="rgb_array")
    theirs.reset(seed=1)
    pairs = set()
    for a in np.random.default_rng(0).integers(6, size=60):
        theirs.step(int(a))
        ours = picture(theirs.game.state())[CELL // 2 :: CELL, CELL // 2 :: CELL]
        pairs |= {
            (tuple(x), tuple(y)) for x, y in zip(ours.reshape(-1, 3), theirs.render().reshape(-1, 3), strict=True)
        }
    assert len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs}) > 2


def test_a_film_shows_the_squares_as_they_are(tmp_path):
    summary = fedqhd.train(tiny(tmp_path / "run", env="MinAtar/Breakout-v1", episodes=2, rollout_steps=200))
    play(fedqhd.load_policy(summary["out"]), tmp_path / "film.gif", longest=5)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 5
        assert film.size == (WIDTH, WIDTH)
        assert film.info["duration"] == 50
        first = np.asarray(film.convert("RGB")).astype(int)
    bricks, paddle = first[CELL + 5, 5], first[9 * CELL + 5, 4 * CELL + 5]
    assert np.abs(bricks - COLOURS[4]).max() <= 4
    assert np.abs(paddle - COLOURS[1]).max() <= 4


def test_a_window_shows_the_same_picture(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.warns(UserWarning, match="HumanRendering wrapper is being applied"):
        env = make_env("MinAtar/Breakout-v1", render_mode="human")
    env.reset(seed=0)
    assert env.get_wrapper_attr("window").get_size() == (10 * CELL, 10 * CELL)
    env.close()
