"""Command-line flags for all settings, made from the settings classes."""

from __future__ import annotations

import argparse
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedqhd.core.presets import read_toml
from fedqhd.core.settings import groups_of, type_of
from fedqhd.runs.config import KnownSettings


def weights(words: list[str]) -> str | tuple[float, ...]:
    """Parse --weights: either the name of a rule, or one number for each client."""
    try:
        return tuple(float(w) for w in words)
    except ValueError:
        return " ".join(words)


class SettingFlags:
    """Adds a flag for every setting to a parser, in groups. The result has only those that were given.

    Args:
        words: The arguments of the command line. A method or learner of the user's own that they choose, directly or
            through --config, adds its settings.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.known = KnownSettings(chosen(words))

    def __call__(self, parser: argparse.ArgumentParser) -> None:
        for title, names in groups_of(*self.known.classes).items():
            group = parser.add_argument_group(title)
            for name in names:
                self._add(group, name)

    def _add(self, group: Any, name: str) -> None:
        f, kind = self.known.fields[name], type_of(self.known.home[name], name)
        options: dict[str, Any] = {"type": kind}
        if isinstance(kind, types.UnionType):
            options = {"type": str, "nargs": "+"}
        elif typing.get_origin(kind) is tuple:
            options = {"type": typing.get_args(kind)[0], "nargs": "+"}
        default = " ".join(map(str, f.default)) if isinstance(f.default, tuple) else f.default
        text = f.metadata["help"] + (f" ({default})" if default != "" else "")
        metavar = "|".join(f.metadata["choices"]) or name.rsplit("_")[-1].upper()
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, help=text.replace("%", "%%"), metavar=metavar, default=argparse.SUPPRESS, **options)


def chosen(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings in the file of --config, overridden by --method, --learner and --agents if given."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", default="")
    for name in ("method", "learner"):
        early.add_argument(f"--{name}", default=argparse.SUPPRESS)
    early.add_argument("--agents", nargs="+", default=argparse.SUPPRESS)
    found = vars(early.parse_known_args(words)[0])
    file = found.pop("config")
    return {**(read_toml(Path(file)) if file else {}), **found}


def given_settings(words: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings among the parsed arguments of a command."""
    known = KnownSettings(chosen(words)).fields
    given = {k: v for k, v in vars(args).items() if k in known}
    if "weights" in given:
        given["weights"] = weights(given["weights"])
    return given
