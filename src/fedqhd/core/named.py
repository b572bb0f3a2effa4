"""Things of the user's own, by name: `module:name` on the command line and in files, any object from Python."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from fedqhd.core.errors import FedQHDError, nearest

PYTHON = "python"
"""`python:NAME` is an object that this process was given and no module holds: another process does not have it."""
_given: dict[str, Any] = {}


def is_own(name: str) -> bool:
    """Whether a name has the form `module:name`."""
    module, _, path = name.partition(":")
    return bool(module) and all(part.isidentifier() for part in path.split("."))


def find(name: str, setting: str) -> Any:
    """What `module:name` stands for; None where the module has no such name."""
    module, _, path = name.partition(":")
    if module == PYTHON:
        if name not in _given:
            raise FedQHDError(
                f"{setting}={name!r} was a Python object that this process was not given: put what makes it into a "
                "module and give module:name"
            )
        return _given[name]
    try:
        thing: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = "is not to be found from here" if error.name == module else f"needs {error.name!r}, which is missing"
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: the module {module!r} {missing}") from error
    except Exception as error:
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: importing {module!r} gives {error!r}") from error
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing


def load(name: str, setting: str) -> Any:
    """What `module:name` stands for, or one sentence on why it stands for nothing."""
    thing = find(name, setting)
    if thing is None:
        module, _, path = name.partition(":")
        hint = nearest(path, dir(importlib.import_module(module)))
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: {module!r} has no {path!r}{hint}")
    return thing


def name_of(thing: Any) -> str:
    """A name under which `find` gives the thing back: its own where a module holds it, else one in this process."""
    if isinstance(thing, str):
        return thing
    module, path = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if module != "__main__" and path.isidentifier():
        name = f"{module}:{path}"
        with contextlib.suppress(FedQHDError):  # code that was executed from a text has a module that nobody can import
            if find(name, "name") is thing:
                return name
    label = (path or type(getattr(thing, "unwrapped", thing)).__qualname__).rpartition(".")[2].strip("<>")
    name, k = f"{PYTHON}:{label}", 1
    while name in _given and _given[name] is not thing:
        k += 1
        name = f"{PYTHON}:{label}-{k}"
    _given[name] = thing
    return name
