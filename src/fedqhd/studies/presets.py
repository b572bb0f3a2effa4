"""The cells of the paper's tables and their settings in both presets: `paper`, as the paper states, and `tuned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fedqhd.core import presets
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.length import BY_STEPS
from fedqhd.core.named import path_part
from fedqhd.core.presets import PLAIN, SETTINGS, TUNED
from fedqhd.federation.method import METHODS as KINDS
from fedqhd.runs.config import FIELDS, resolve

ENVS = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MountainCar-v0")
METHODS = tuple(kind.name for kind in sorted(KINDS.all(), key=lambda kind: kind.style.rank))
"""All methods in the order of the paper's table, with the oracles, which pool the data of all clients, at the end."""
WIDTHS = (64, 96, 128)
"""The widths of networks in a heterogeneous federation, cycled over clients. The paper states only 128."""


class Cell(NamedTuple):
    """A cell of the main table."""

    method: str
    env: str
    setting: str

    @property
    def name(self) -> str:
        return f"{path_part(self.env)}-{self.method}-{self.setting}"

    @property
    def source(self) -> Cell:
        """The cell whose runs this one uses: some methods coincide with another in a setting."""
        method, setting = KINDS.find(self.method).source(self.setting)
        return self._replace(method=method, setting=setting)


def cells(
    methods: Sequence[str] = METHODS, envs: Sequence[str] = ENVS, settings: Sequence[str] = SETTINGS
) -> list[Cell]:
    """Return the cells of the table in its order, without combinations of method and setting that are impossible."""
    every = (Cell(m, e, s) for e, s, m in product(envs, settings, methods))
    return [c for c in every if c.setting in KINDS.find(c.method).supported_settings]


def seeds(preset: str, cell: Cell) -> range:
    """Return the seeds whose results are reported. Seeds from 100 on are reserved for tuning."""
    return range(3 if preset == "paper" else KINDS.find(cell.source.method).seeds)


def plain(settings: Mapping[str, Any]) -> Config:
    """Return the configuration of a run with these settings over the environment's file in configs/, without a preset.

    Settings that do not apply to the run are ignored.
    """
    return resolve({}, preset=PLAIN, shared=settings)


def cell_settings(cell: Cell) -> dict[str, Any]:
    """Return the settings that identify a cell: its method, environment and setting."""
    return {"method": cell.method, "env": cell.env, "setting": cell.setting}


def paper(cell: Cell) -> dict[str, Any]:
    """Return the settings that the paper states for a cell."""
    method = KINDS.find(cell.method)
    names = method.table_names({"learner": presets.paper()["learner"], "setting": cell.setting})
    stated = presets.flattened(presets.paper(), names)
    c = resolve(cell_settings(cell), preset="paper")
    return {k: v for k, v in stated.items() if k in c} | cell_settings(cell)


def start(cell: Cell) -> dict[str, Any]:
    """Return the settings from which tuning starts.

    These are the environment's settings in configs/, with least squares for QHD and a minibatch every four steps for
    DQN.
    """
    chosen: dict[str, Any] = cell_settings(cell)
    c = resolve(chosen, preset=PLAIN)
    if "learner" in c:
        return chosen | {"learner": "least-squares"}
    if cell.setting == "heterogeneous":
        chosen["widths"] = list(WIDTHS)
    if c.update_every < 4:
        # With a quarter of the updates, the target network moves four times as far at each. Early episodes are short:
        # on seed 100, a DQN that starts to learn after 1000 steps has learned nothing after 150 episodes, whereas one
        # that starts after 200 steps reaches a return of 300.
        tau = min(1.0, c.target_tau * 4 / c.target_steps)
        chosen |= {"update_every": 4, "target_steps": 4, "target_tau": tau, "learning_starts": 200}
    return chosen | {"gradient_steps": 1}


def tuned(cell: Cell, folder: Path = TUNED) -> dict[str, Any] | None:
    """Return the settings that the tuner chose for a cell, or None if it has not been tuned."""
    chosen = presets.tuned(cell.env, cell.source.method, cell.source.setting, folder)
    return None if chosen is None else {**chosen, **cell_settings(cell.source)}


def settings(preset: str, cell: Cell, folder: Path = TUNED) -> dict[str, Any]:
    """Return the settings of the runs of a cell over the environment's defaults.

    Args:
        preset: "paper" or "tuned". A cell that has not been tuned gets the settings from which tuning starts.
        cell: The cell; method and setting are those of its source (see `Cell.source`).
        folder: The folder of tuned settings.
    """
    if preset == "paper":
        return paper(cell.source)
    return tuned(cell, folder) or start(cell.source)


def parse_set(words: Sequence[str]) -> dict[str, Any]:
    """Parse settings of the form NAME=VALUE; commas separate the values of a tuple.

    Raises:
        FedQHDError: If a name is unknown or a value has the wrong type.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in FIELDS:
            raise FedQHDError(f"set={word!r} is not a setting: give NAME=VALUE with a name from fedqhd train --help")
        if name in BY_STEPS:
            raise FedQHDError(f"set={word!r} is not possible: studies count episodes; give episodes and round_episodes")
        found[name] = parse_value(name, text)
    return found


def parse_value(name: str, text: str) -> Any:
    """Parse the value of a setting, or raise FedQHDError if it has the wrong type."""
    kind = FIELDS[name].default

    def one(part: str, like: Any) -> Any:
        try:
            return type(like)(part)
        except ValueError:
            raise FedQHDError(f"set='{name}={text}' has the wrong type: {type(like).__name__} is needed") from None

    if isinstance(kind, tuple):
        like = kind[0] if kind else 0.0 if name.startswith("scale") else ""
        return [one(part, like) for part in text.split(",")]
    return one(text, kind)
