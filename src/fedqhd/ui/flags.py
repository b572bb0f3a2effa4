"""A flag for every setting, assembled from the classes that the settings belong to."""

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
    """The name of a rule, or a number for each client."""
    try:
        return tuple(float(w) for w in words)
    except ValueError:
        return " ".join(words)


class SettingFlags:
    """A flag for every setting, grouped by what it belongs to; only those given show up in the result.

    Settings of the user's own methods and learners are found by what the command line, or the file it names, chooses.
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
    """Method, learner and agents, as far as the words of a command line name them, or the file that they name."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", default="")
    for name in ("method", "learner"):
        early.add_argument(f"--{name}", default=argparse.SUPPRESS)
    early.add_argument("--agents", nargs="+", default=argparse.SUPPRESS)
    found = vars(early.parse_known_args(words)[0])
    file = found.pop("config")
    return {**(read_toml(Path(file)) if file else {}), **found}


def given_settings(words: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """The settings among the arguments of a command."""
    known = KnownSettings(chosen(words)).fields
    given = {k: v for k, v in vars(args).items() if k in known}
    if "weights" in given:
        given["weights"] = weights(given["weights"])
    return given
