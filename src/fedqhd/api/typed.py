"""Writes `options.py`, which tells type checkers and editors the names and types of all settings.

Run `python -m fedqhd.api.typed` after adding a setting.
"""

from __future__ import annotations

import textwrap
import types
import typing
from pathlib import Path
from typing import Any

from fedqhd.core.settings import type_of
from fedqhd.runs.config import KnownSettings

WIDTH = 116
FILE = Path(__file__).with_name("options.py")
HEAD = '''"""The types of all settings, for type checkers and editors; written by `python -m fedqhd.api.typed`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, TypedDict

import numpy as np

Whole = int | np.integer[Any]
Number = float | np.floating[Any] | Whole
Text = str | PathLike[str]
Own = object
"""A name, or a class, function or object of your own."""
'''
OTHERS = '''

class Others(TypedDict, total=False):
    """The settings that are not in the signature of `fedqhd.train`."""
'''
COMMON = '''

class Common(Others, total=False):
    """The settings that runs of a sweep can have in common: all but the seed and the folder."""
'''
ALL = '''

class Options(Common, total=False):
    """All settings of a run."""
'''
NAMED = (
    "env", "method", "setting", "learner", "encoder", "dims", "agents", "clients", "episodes", "round_episodes",
    "eval_episodes", "anchors", "gamma", "engine", "callbacks",
)  # fmt: skip
"""The settings in the signature of `fedqhd.train`, except for OWN."""
OWN = ("seed", "out")
"""The settings in which every run of a sweep differs from all others."""
NAMES = {int: "Whole", float: "Number", str: "Text"}


def annotation(kind: Any, custom: bool) -> str:
    """Return the annotation of a setting of a type; `custom` says whether objects from Python are allowed."""
    if isinstance(kind, types.UnionType):
        return " | ".join(annotation(part, custom) for part in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        part = annotation(typing.get_args(kind)[0], custom)
        return f"{part} | Sequence[{part}]"
    return "Own" if custom else NAMES[kind]


def source() -> str:
    """Return the contents of `options.py`."""
    known = KnownSettings()

    def line(name: str) -> str:
        f = known.fields[name]
        kind, text = annotation(type_of(known.home[name], name), f.metadata["custom"]), f.metadata["help"]
        wrapped = "\n    ".join(textwrap.wrap(f'"""{text}"""', WIDTH))
        return f"\n    {name}: {kind}\n    {wrapped}\n"

    others = [name for name in known.fields if name not in (*NAMED, *OWN)]
    parts = ((OTHERS, others), (COMMON, NAMED), (ALL, OWN))
    return HEAD + "".join(head + "".join(map(line, names)) for head, names in parts)


if __name__ == "__main__":
    FILE.write_text(source())
