"""The settings of one run: those that matter to its method, and no others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import tomli_w

from fedqhd.core.settings import Settings, fields_of

S = TypeVar("S", bound=Settings)


class Config:
    """A frozen record of settings, each an attribute. `fedqhd.runs.config.resolve` makes and checks it."""

    values: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(values)))

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{name} is no setting of {values.get('method', 'this run')}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings do not change: use replace({name}=...)")

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """A setting that not every method has."""
        return self.values.get(name, default)

    def part(self, cls: type[S], **others: Any) -> S:
        """The settings of one class as that class, `others` in place of some of them."""
        return cls(**{name: self.values[name] for name in fields_of(cls) if name in self.values} | others)

    def replace(self, **changes: Any) -> Config:
        """The same settings but for these."""
        return Config({**self.values, **changes})

    @property
    def folder(self) -> Path:
        """Where the results of the run go."""
        names = ("env", "method", "setting", "learner", "seed")
        words = [re.sub(r"[/:]", "-", str(self.values[name])) for name in names if name in self.values]
        return Path(self.out or f"runs/{'-'.join(words)}")

    def to_toml(self) -> str:
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
    """The default of every setting of these classes."""
    return {name: f.default for name, f in fields_of(*classes).items() if f.default is not dataclasses.MISSING}
