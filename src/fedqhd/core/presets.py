"""Settings from files: one file for each environment, and the presets `tuned` (the default) and `paper` on top of it.

configs/ENV.toml contains the hand-made settings of an environment, configs/tuned/ENV.toml the settings that the tuner
chose for each method and setting, and configs/presets/paper.toml the settings that the paper states. A table in a file
applies if it is named after the chosen setting, learner or method; it overrides the lines outside of the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError
from fedqhd.core.named import path_part

CONFIGS = Path(str(resources.files("fedqhd"))) / "configs"
TUNED = CONFIGS / "tuned"
SETTINGS = ("homogeneous", "heterogeneous")
"""Whether all clients have the same encoder or network, or each has a different one."""
PRESETS = ("tuned", "paper")
PLAIN = "plain"
"""The name for no preset: only the file of the environment is used. Tuning starts from these settings."""

Tables = Mapping[str, Any]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of settings. Raises FedQHDError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FedQHDError(f"config={str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise FedQHDError(f"config={str(path)!r} cannot be read as TOML: {error}") from error


def file_of(env: str) -> str:
    """Return the name of the file with the settings of an environment, such as MinAtar-Breakout-v1.toml."""
    return f"{path_part(env)}.toml"


def environment_file(env: str) -> dict[str, Any]:
    """Return the hand-made settings of an environment; they are empty if it has no file."""
    file = CONFIGS / file_of(env)
    return read_toml(file) if file.is_file() else {}


def flattened(tables: Tables, names: Sequence[str]) -> dict[str, Any]:
    """Merge the top level of a file with its tables, at any depth, that have one of these names; later names win."""
    found = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    for name in names:
        if isinstance(tables.get(name), dict):
            found |= flattened(tables[name], names)
    return found


def paper() -> dict[str, Any]:
    """Return the settings that the paper states, as tables."""
    return read_toml(CONFIGS / "presets" / "paper.toml")


def tuned(env: str, method: str, setting: str, folder: Path = TUNED) -> dict[str, Any] | None:
    """Return the settings that the tuner chose for a method in an environment, or None if they were never tuned."""
    file = folder / file_of(env)
    chosen = read_toml(file).get(method, {}).get(setting) if file.is_file() else None
    return None if chosen is None else dict(chosen)
