"""What data from others may be: the type, range and length of each field, and one sentence about data that is not."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

FAR = 1e100
"""The largest absolute value of a number without a range of its own: sums and squares of such numbers are finite."""


class Field(Protocol):
    """What a value may be. Its text completes the sentence "it must be ..."."""

    def accepts(self, value: Any) -> bool:
        """Tell whether a value, which may be anything, is of this kind."""
        ...


@dataclass(frozen=True)
class Whole:
    """A whole number. Truth values and numbers of numpy are not, since files and messages cannot hold the latter."""

    least: int = 0
    most: int = 2**53

    def accepts(self, value: Any) -> bool:
        return type(value) is int and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True)
class Real:
    """A finite number."""

    least: float = -FAR
    most: float = FAR

    def accepts(self, value: Any) -> bool:
        # NaN is neither below nor above anything, and the comparison of large whole numbers does not overflow.
        return type(value) in (int, float) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def accepts(self, value: Any) -> bool:
        return type(value) is bool

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Text:
    """A text of limited length. It goes to logs and terminals, so it has no control characters unless it has lines."""

    longest: int
    lines: bool = False
    characters: str = ""
    """The only characters that it may have, as a class of regular expressions; all others are possible if empty."""

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > self.longest:
            return False
        allowed = not self.characters or re.fullmatch(f"{self.characters}*", value) is not None
        return allowed and (self.lines or value.isprintable())

    def __str__(self) -> str:
        kind = "a text" if self.lines else "a printable text"
        return f"{kind} of at most {self.longest} characters" + (f" out of {self.characters}" * bool(self.characters))


@dataclass(frozen=True)
class ListOf:
    """A list of `least` to `most` items."""

    item: Field
    least: int
    most: int

    def accepts(self, value: Any) -> bool:
        return isinstance(value, list) and self.least <= len(value) <= self.most and all(map(self.item.accepts, value))

    def __str__(self) -> str:
        length = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        return f"a list of length {length}, and each item {self.item}"


@dataclass(frozen=True)
class MapOf:
    """A table of values by name; if there are `names`, it has no others."""

    item: Field
    names: tuple[str, ...] = ()

    def accepts(self, value: Any) -> bool:
        return isinstance(value, dict) and all(
            (not self.names or name in self.names) and self.item.accepts(one) for name, one in value.items()
        )

    def __str__(self) -> str:
        names = f" of {', '.join(self.names)}" if self.names else ""
        return f"a table{names}, and each value {self.item}"


@dataclass(frozen=True)
class Json:
    """A text in JSON whose content passes a check; `what` describes it."""

    check: Callable[[Any], bool]
    what: str
    longest: int = 100_000

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > self.longest:
            return False
        try:
            return self.check(json.loads(value))
        except (ValueError, RecursionError):
            return False

    def __str__(self) -> str:
        return f"{self.what} in JSON"


@dataclass(frozen=True)
class Optional:
    """A field that may be missing."""

    field: Field

    def accepts(self, value: Any) -> bool:
        return self.field.accepts(value)

    def __str__(self) -> str:
        return str(self.field)


def shown(value: Any) -> str:
    """Return a short text on one line for any value."""
    return f"{reprlib.repr(value):.60}"


def fault(values: Mapping[str, Any], fields: Mapping[str, Field]) -> str:
    """Return what is wrong with named values, as a sentence, or "" if all fields are there and nothing else.

    Args:
        values: The values, which may be anything.
        fields: What each of them may be.
    """
    for name, field in fields.items():
        if name not in values:
            if not isinstance(field, Optional):
                return f"its {name} is missing"
        elif not field.accepts(values[name]):
            return f"its {name} is {shown(values[name])}, but must be {field}"
    unknown = sorted(map(shown, values.keys() - fields.keys()))
    return f"it has {unknown[0]}, which is unknown" if unknown else ""
