"""The cells of the paper's tables, and the settings behind each: `paper`, as it states them, and `tuned`, ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fedqhd.core import presets
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import PLAIN, SETTINGS, TUNED
from fedqhd.federation.method import METHODS as KINDS
from fedqhd.runs.config import FIELDS, resolve

ENVS = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3", "MountainCar-v0")
METHODS = tuple(kind.name for kind in sorted(KINDS.all(), key=lambda kind: kind.style.rank))
"""In the order of the paper's table; oracles, which pool the data of all clients, at the end."""
WIDTHS = (64, 96, 128)
"""Of the networks of a heterogeneous federation, cycled; the paper says 128 and nothing about others."""


class Cell(NamedTuple):
    """A field of the main table."""

    method: str
    env: str
    setting: str

    @property
    def name(self) -> str:
        return f"{self.env}-{self.method}-{self.setting}"

    @property
    def source(self) -> Cell:
        """Whose runs these are, as the method says."""
        method, setting = KINDS.find(self.method).source(self.setting)
        return self._replace(method=method, setting=setting)


def cells(
    methods: Sequence[str] = METHODS, envs: Sequence[str] = ENVS, settings: Sequence[str] = SETTINGS
) -> list[Cell]:
    """Every cell of the table, in its order. Networks of different widths have no parameters to average."""
    every = (Cell(m, e, s) for e, s, m in product(envs, settings, methods))
    return [c for c in every if c.setting in KINDS.find(c.method).supported_settings]


def seeds(preset: str, cell: Cell) -> range:
    """The reporting seeds; those from 100 on are for tuning."""
    return range(3 if preset == "paper" else KINDS.find(cell.source.method).seeds)


def plain(given: Mapping[str, Any]) -> Config:
    """The settings of a run of a study: those given, as far as they matter to it, over the environment's file in
    configs/ and nothing else."""
    return resolve({}, preset=PLAIN, shared=given)


def given(cell: Cell) -> dict[str, Any]:
    return {"method": cell.method, "env": cell.env, "setting": cell.setting}


def paper(cell: Cell) -> dict[str, Any]:
    """What the paper states for a cell."""
    method = KINDS.find(cell.method)
    names = method.table_names({"learner": presets.paper()["learner"], "setting": cell.setting})
    stated = presets.flattened(presets.paper(), names)
    c = resolve(given(cell), preset="paper")
    return {k: v for k, v in stated.items() if k in c} | given(cell)


def start(cell: Cell) -> dict[str, Any]:
    """Where tuning starts: each environment's hand-made settings, least squares for QHD, a minibatch every four steps
    for DQN."""
    own: dict[str, Any] = given(cell)
    c = resolve(own, preset=PLAIN)
    if "learner" in c:
        return own | {"learner": "least-squares"}
    if cell.setting == "heterogeneous":
        own["widths"] = list(WIDTHS)
    if c.update_every < 4:
        # A target that followed at every update follows as fast at every fourth. Episodes are short here at first:
        # on seed 100, who waits for 1000 steps has learned nothing after 150 of them, who waits for 200 is at 300.
        tau = min(1.0, c.target_tau * 4 / c.target_steps)
        own |= {"update_every": 4, "target_steps": 4, "target_tau": tau, "learning_starts": 200}
    return own | {"gradient_steps": 1}


def tuned(cell: Cell, folder: Path = TUNED) -> dict[str, Any] | None:
    """What the tuner chose for a cell, or None where it has not been there."""
    chosen = presets.tuned(cell.env, cell.source.method, cell.source.setting, folder)
    return None if chosen is None else {**chosen, **given(cell.source)}


def settings(preset: str, cell: Cell, folder: Path = TUNED) -> dict[str, Any]:
    """What is given to a run of a cell, over the environment's own defaults; the method is that which runs."""
    if preset == "paper":
        return paper(cell.source)
    return tuned(cell, folder) or start(cell.source)


def parse_set(words: Sequence[str]) -> dict[str, Any]:
    """Settings for all runs, from NAME=VALUE; a tuple's values are parted by commas."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in FIELDS:
            raise FedQHDError(f"set={word!r} is no setting: give NAME=VALUE, e.g. episodes=100; names as in train")
        found[name] = parse_value(name, text)
    return found


def parse_value(name: str, text: str) -> Any:
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
