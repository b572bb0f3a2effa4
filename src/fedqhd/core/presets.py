"""Settings from files: each environment's own, and two presets over them: `tuned`, which is the default, and `paper`.

configs/ENV.toml has an environment's settings as they were made by hand; configs/tuned/ENV.toml what the tuner chose
for each method and setting; configs/presets/paper.toml what the paper states. A table of a file counts where it bears
the name of the setting, the learner or the method that is chosen, and stands over the lines before it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError

CONFIGS = Path(str(resources.files("fedqhd"))) / "configs"
TUNED = CONFIGS / "tuned"
SETTINGS = ("homogeneous", "heterogeneous")
"""One encoder or network for all clients, or one each."""
PRESETS = ("tuned", "paper")
PLAIN = "plain"
"""In place of a preset: the environment's own file and nothing else, from which tuning starts."""

Tables = Mapping[str, Any]


def read_toml(path: Path) -> dict[str, Any]:
    """A file of settings, or one sentence on why it cannot be read."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FedQHDError(f"config={str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FedQHDError(f"config={str(path)!r} cannot be read as TOML: {error}") from error


def environment_file(env: str) -> dict[str, Any]:
    """The hand-made settings of an environment; none where it has no file."""
    file = CONFIGS / f"{env.replace('/', '-')}.toml"
    return read_toml(file) if file.is_file() else {}


def flattened(tables: Tables, names: Sequence[str]) -> dict[str, Any]:
    """The lines of a file and of those of its tables, to any depth, that bear one of the names; later names win."""
    found = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    for name in names:
        if isinstance(tables.get(name), dict):
            found |= flattened(tables[name], names)
    return found


def paper() -> dict[str, Any]:
    """What the paper states, as tables."""
    return read_toml(CONFIGS / "presets" / "paper.toml")


def tuned(env: str, method: str, setting: str, folder: Path = TUNED) -> dict[str, Any] | None:
    """What the tuner chose for a method in an environment, or None where it has not been there."""
    file = folder / f"{env.replace('/', '-')}.toml"
    chosen = read_toml(file).get(method, {}).get(setting) if file.is_file() else None
    return None if chosen is None else dict(chosen)
