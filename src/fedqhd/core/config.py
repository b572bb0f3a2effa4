"""The settings of one run: only those that its method uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import tomli_w

from fedqhd.core.named import path_part
from fedqhd.core.settings import Settings, fields_of

S = TypeVar("S", bound=Settings)


class Config:
    """A frozen record of the settings of a run, each of which is an attribute.

    `fedqhd.runs.config.resolve` makes and checks it.
    """

    values: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(values)))

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{name} is not a setting of {values.get('method', 'this run')}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings cannot be changed: use replace({name}=...)")

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a setting, or `default` if the run does not have that setting."""
        return self.values.get(name, default)

    def part(self, cls: type[S], **others: Any) -> S:
        """Return the settings of one settings class as an instance of that class.

        Args:
            cls: The settings class. Fields that the run does not have keep their defaults.
            others: Values that replace those of the run.
        """
        return cls(**{name: self.values[name] for name in fields_of(cls) if name in self.values} | others)

    def replace(self, **changes: Any) -> Config:
        """Return a copy in which some settings have other values."""
        return Config({**self.values, **changes})

    def without(self, *names: str) -> Config:
        """Return a copy that lacks some settings."""
        return Config({k: v for k, v in self.values.items() if k not in names})

    @property
    def folder(self) -> Path:
        """The folder for the results of the run: `out`, or else a folder in runs/ named after the main settings."""
        names = ("env", "method", "setting", "learner", "seed")
        words = [path_part(str(self.values[name])) for name in names if name in self.values]
        return Path(self.out or f"runs/{'-'.join(words)}")

    def to_toml(self) -> str:
        """Return the settings as the text of a TOML file."""
        return tomli_w.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in self.values.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and dict(self.values) == dict(other.values)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.values.items(), key=lambda item: item[0])))

    def __reduce__(self) -> tuple[Any, ...]:
        return Config, (dict(self.values),)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self.values.items())})"


def defaults_of(*classes: type[Settings]) -> dict[str, Any]:
    """Return the default of every setting of these classes, by name."""
    return {name: f.default for name, f in fields_of(*classes).items() if f.default is not dataclasses.MISSING}
