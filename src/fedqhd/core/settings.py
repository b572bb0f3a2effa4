"""Settings classes, which declare the default, the help text and the constraints of each setting in one place.

A settings class is a frozen dataclass whose fields are made by `setting`. The command line, TOML files, the arguments
of `fedqhd.train` and the record of a run are assembled from such classes (`fedqhd.runs.config`). The settings of all
classes share one namespace: two classes that have a setting in common inherit it from the same base.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.named import name_of

if TYPE_CHECKING:
    from fedqhd.core.config import Config

Need = Callable[[bool, str, str], None]
"""`need(condition, setting, advice)` refuses a configuration, naming the setting, if the condition is false."""


def setting(
    default: Any,
    help: str,
    *,
    choices: Iterable[str] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    custom: bool = False,
    only: Mapping[str, str] | None = None,
    cycled: bool = False,
) -> Any:
    """Return a field of a settings class.

    Args:
        default: The default value.
        help: The help text for the command line and the documentation.
        choices: The names that are allowed; if there are none, any value is.
        at_least: The smallest value of a number, or of each number in a tuple. An integer without a range must be at
            least 1.
        above: A number that the value must exceed.
        at_most: The largest value of a number, or of each number in a tuple.
        below: A number that the value must stay below.
        custom: Whether the user may also give `module:name`, or an object from Python.
        only: Other settings and the values that they must have for this one to have an effect.
        cycled: Whether a tuple is cycled over the clients. In the homogeneous setting it has one entry.
    """
    limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    metadata = {
        "help": help,
        "choices": tuple(choices),
        "limits": {k: v for k, v in limits.items() if v is not None},
        "custom": custom,
        "only": dict(only or {}),
        "cycled": cycled,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The base of all settings classes."""

    title: ClassVar[str] = ""
    """The heading under which `--help` lists the fields that this class defines."""

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        """Refuse combinations of settings that are impossible, by calling `need`."""


SettingsType = type[Settings]


def fields_of(*classes: type[Settings]) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of these classes by name, in the order of the classes."""
    return {f.name: f for cls in classes for f in dataclasses.fields(cls)}


def groups_of(*classes: type[Settings]) -> dict[str, list[str]]:
    """Return the names of the settings under the title of the class that defines them."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for cls in classes:
        for home in reversed(cls.__mro__):
            names = [n for n in inspect.get_annotations(home) if n in fields_of(cls) and n not in seen]
            if names:
                found.setdefault(home.__dict__.get("title", home.__name__), []).extend(names)
                seen.update(names)
    return found


_types: dict[Any, dict[str, Any]] = {}
"""The types of the settings of each class, cached because resolving them is the slowest part of making a parser."""


def type_of(cls: type[Settings], name: str) -> Any:
    """Return the type of a setting of a class."""
    if cls not in _types:
        _types[cls] = typing.get_type_hints(cls)
    return _types[cls][name]


def coerced(name: str, value: Any, kind: Any, custom: bool = False) -> Any:
    """Return the value converted to the type of its setting.

    Lists become tuples, single values become tuples of one, and integers become floats where the type says so. Paths
    and the numbers and arrays of numpy are taken, too.

    Args:
        name: The name of the setting, for error messages.
        value: The value, as it comes from a file, the command line or Python.
        kind: The type of the setting.
        custom: Whether objects from Python are allowed; they are replaced by their names.

    Raises:
        FedQHDError: If the value does not have that type.
    """

    def as_type(kind: Any, v: Any) -> Any:
        v = plain(v)
        if isinstance(kind, types.UnionType):
            kind = next(k for k in typing.get_args(kind) if (k is str) == isinstance(v, str))
        if typing.get_origin(kind) is tuple:
            several = v if isinstance(v, list | tuple) else (v,)
            return tuple(as_type(typing.get_args(kind)[0], x) for x in several)
        if kind is float and isinstance(v, int) and not isinstance(v, bool):
            return float(v)
        if not isinstance(v, kind) or isinstance(v, bool):
            raise TypeError
        return v

    if custom:
        value = tuple(map(_named, value)) if isinstance(value, list | tuple) else _named(value)
    try:
        return as_type(kind, value)
    except TypeError:
        wanted = kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
        raise FedQHDError(f"{name}={value!r} has the wrong type: {wanted} is needed") from None


def plain(value: Any) -> Any:
    """Return paths as text, and the numbers and arrays of numpy as those of Python."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _named(value: Any) -> Any:
    """Replace an object from Python by its name; leave values that a TOML file can hold."""
    value = plain(value)
    known = value is None or isinstance(value, str | int | float | list | tuple | dict)
    return value if known else name_of(value)


def check_value(name: str, value: Any, f: dataclasses.Field[Any]) -> None:
    """Raise FedQHDError if a value is not among the choices, not finite, or out of range."""
    choices, custom = f.metadata["choices"], f.metadata["custom"]
    for x in value if isinstance(value, tuple) else (value,):
        if choices and x not in choices and isinstance(x, str) and not (custom and ":" in x):
            more = " or module:name" if custom else ""
            raise FedQHDError(f"{name}={x!r} is unknown{nearest(x, choices)}: choose from {', '.join(choices)}{more}")
        if isinstance(x, float) and not math.isfinite(x):
            raise FedQHDError(f"{name}={x} must be a finite number")
        if isinstance(x, int | float) and not isinstance(x, bool) and not within(x, limits_of(x, f)):
            several = isinstance(value, tuple)
            rule = range_text(limits_of(x, f), several)
            raise FedQHDError(f"{name}={list(value) if several else value} is not possible: {rule}")


def limits_of(x: float, f: dataclasses.Field[Any]) -> dict[str, float]:
    """Return the limits of a setting, such as {"at least": 0}; without any, an integer x must be at least 1."""
    limits: dict[str, float] = f.metadata["limits"]
    return limits or ({"at least": 1} if isinstance(x, int) else {})


def within(x: float, limits: Mapping[str, float]) -> bool:
    """Return whether x is within the limits."""
    holds: Mapping[str, Callable[[float, float], bool]] = {
        "at least": lambda a, b: a >= b, "above": lambda a, b: a > b,
        "at most": lambda a, b: a <= b, "below": lambda a, b: a < b,
    }  # fmt: skip
    return all(holds[kind](x, limit) for kind, limit in limits.items())


def range_text(limits: Mapping[str, float], each: bool = False) -> str:
    """Return a range in words, for instance "it must be above 0 and at most 1"."""
    parts = [f"{kind} {limit:g}" for kind, limit in limits.items()]
    return f"{'each' if each else 'it'} must be {' and '.join(parts)}"
