"""Methods, learners and whatever else comes in kinds, found by name: a file in a folder of ours, or `module:Class`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cached_property
from typing import Any, Generic, TypeVar

from fedqhd.core import named
from fedqhd.core.errors import FedQHDError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes of one kind. Ours are the modules of a package, one class each, which bears the module's name with
    `-` for `_`; so a new one is a new file and nothing else. A module is imported when its class is first asked for."""

    def __init__(self, setting: str, package: str, base: type[T]) -> None:
        """
        Args:
            setting: The name under which users choose one, for messages.
            package: Where ours are.
            base: What all of them inherit from.
        """
        self.setting, self.package, self.base = setting, package, base

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of those that come with the package, in alphabetical order."""
        package = importlib.import_module(self.package)
        return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__)))

    def all(self) -> list[type[T]]:
        """Ours, in the order of their names."""
        return [self.find(name) for name in self.names]

    def find(self, name: str) -> type[T]:
        """The class of this name, or of `module:Class`; one sentence where there is none or it does not fit."""
        if ":" in name:
            return self._own(name)
        if name not in self.names:
            known = ", ".join(self.names)
            raise FedQHDError(
                f"{self.setting}={name!r} is unknown{nearest(name, self.names)}: choose from {known} or module:Class"
            )
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        classes: list[Any] = [c for c in vars(module).values() if inspect.isclass(c)]
        return next(c for c in classes if vars(c).get("name") == name)

    def _own(self, name: str) -> type[T]:
        found: Any = named.load(name, self.setting)
        if not (inspect.isclass(found) and issubclass(found, self.base)):
            raise FedQHDError(
                f"{self.setting}={name!r} is {found!r:.60}: a class that inherits from "
                f"{self.base.__module__}.{self.base.__name__} is needed"
            )
        return found
