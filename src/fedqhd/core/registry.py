"""Registries that find methods, learners and the like by name."""

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
    """The classes of one kind, by name.

    Built-in classes are in the modules of one package. Each module contains one class, whose `name` is the name of the
    module with `-` for `_`, so adding a class takes a new file and nothing else. A module is imported when its class is
    first looked up. Custom classes have names of the form `module:Class`.
    """

    def __init__(self, setting: str, package: str, base: type[T]) -> None:
        """
        Args:
            setting: The setting by which users choose a class, for error messages.
            package: The package of the built-in classes.
            base: The class from which all of them inherit.
        """
        self.setting, self.package, self.base = setting, package, base

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the built-in classes, in alphabetical order."""
        package = importlib.import_module(self.package)
        return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__)))

    def all(self) -> list[type[T]]:
        """Return the built-in classes in the order of their names."""
        return [self.find(name) for name in self.names]

    def find(self, name: str) -> type[T]:
        """Return the class of this name. Raises FedQHDError if there is none or it does not inherit from `base`."""
        if ":" in name:
            return self._custom(name)
        if name not in self.names:
            known = ", ".join(self.names)
            raise FedQHDError(
                f"{self.setting}={name!r} is unknown{nearest(name, self.names)}: choose from {known} or module:Class"
            )
        module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
        classes: list[Any] = [c for c in vars(module).values() if inspect.isclass(c)]
        return next(c for c in classes if vars(c).get("name") == name)

    def _custom(self, name: str) -> type[T]:
        found: Any = named.load(name, self.setting)
        if not (inspect.isclass(found) and issubclass(found, self.base)):
            raise FedQHDError(
                f"{self.setting}={name!r} is {found!r:.60}: a class that inherits from "
                f"{self.base.__module__}.{self.base.__name__} is needed"
            )
        return found
