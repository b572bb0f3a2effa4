"""The five games of MinAtar (Young and Tian, 2019), which need the extra `minatar`.

The rules are those of the package. Three things differ from its own environments: a new episode forgets the last action
of the one before, so that it depends only on its seed and its actions; the timer of Freeway truncates an episode
instead of terminating it, because it is not part of the observation; and every game has a time limit.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box, Discrete

from fedqhd.core.protocols import Array

GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
"""The names of the games in ids, and those of their modules in the package."""
TIMED = ("freeway",)
"""Games that end after a number of frames, whatever happens in them."""
LIMIT = 5_000
"""The time limit of every game. Freeway ends before, after 2,501 steps."""
ACTIONS = 6
"""The number of actions that every game accepts, though some of them may do nothing."""

SPECS = {
    f"MinAtar/{name}-v{version}": EnvSpec(
        f"MinAtar/{name}-v{version}",
        entry_point=f"{__name__}:MinAtar",
        max_episode_steps=LIMIT,
        kwargs={"game": game, "use_minimal_action_set": bool(version)},
    )
    for name, game in GAMES.items()
    for version in (0, 1)
}
"""The environments by id. Version 0 has all actions, version 1 those that have an effect in the game."""

CELL = 32
"""The width of a cell in a picture, in pixels."""
COLOURS = np.array(
    [
        (0, 0, 0),  # an empty cell
        (255, 255, 255), (235, 64, 52), (70, 110, 160), (250, 190, 40), (60, 200, 90),
        (220, 90, 220), (40, 210, 220), (60, 90, 255), (160, 105, 55), (255, 160, 150),
    ],
    np.uint8,
)  # fmt: skip
"""The colours of an empty cell and of the channels; the first channel of every game is the player."""


@cache
def _rules(game: str) -> Any:
    """Return the package's module with the rules of a game.

    It is loaded on its own, because the package itself imports seaborn, which takes seconds and is not needed here.

    Raises:
        DependencyNotInstalled: If there is no such package.
    """
    package = find_spec("minatar")
    folders = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec(game, [f"{folder}/environments" for folder in folders or ()])
    if spec is None or spec.loader is None:
        raise DependencyNotInstalled("install MinAtar with pip install 'fedqhd[minatar]'")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MinAtar(gymnasium.Env[Array, Any]):
    """A game of MinAtar. An observation is a grid of booleans (10, 10, C) with one channel for each kind of object.

    Args:
        game: The name of its module in the package.
        use_minimal_action_set: Whether actions without an effect in this game are left out.
        sticky_action_prob: The probability that the last action is repeated instead of the chosen one.
        difficulty_ramping: Whether Asterix, Seaquest and SpaceInvaders become harder during an episode.
        render_mode: "rgb_array" for pictures, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        use_minimal_action_set: bool = False,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if not 0 <= sticky_action_prob <= 1:
            raise ValueError(f"sticky_action_prob={sticky_action_prob} is not a probability")
        self.game = _rules(game).Env(ramping=difficulty_ramping)
        self.timed = game in TIMED
        self.stickiness = sticky_action_prob
        self.last_action = 0
        self.actions = self.game.minimal_action_set() if use_minimal_action_set else list(range(ACTIONS))
        self.action_space = Discrete(len(self.actions))
        self.observation_space = Box(0, 1, tuple(self.game.state_shape()), bool)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # The rules draw from a generator of this kind, and so do sticky actions in the package.
            self.game.random = np.random.RandomState(seed)
        self.game.reset()
        self.last_action = 0
        return self.game.state(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self.game.random.rand() >= self.stickiness:
            self.last_action = self.actions[action]
        reward, ended = self.game.act(self.last_action)
        return self.game.state(), float(reward), ended and not self.timed, ended and self.timed, {}

    def render(self) -> Any:
        return picture(self.game.state()) if self.render_mode else None


def picture(grid: Array) -> Array:
    """Return a grid (H, W, C) of booleans as an image of H x W squares, (CELL * H, CELL * W, 3).

    As in the package, the highest channel of a cell is on top. Squares are separated by black lines.
    """
    top = np.max(grid * np.arange(1, grid.shape[2] + 1), axis=2)
    image = COLOURS[top].repeat(CELL, axis=0).repeat(CELL, axis=1)
    image[::CELL] = image[:, ::CELL] = 0
    return image
