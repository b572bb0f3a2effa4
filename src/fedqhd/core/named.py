"""Names of custom objects.

On the command line and in files, users refer to their own classes and functions as `module:name`. From Python they can
pass any object, which then gets a name.

Importing a module runs it. Names in files and messages of others get here only after `fedqhd.core.trust` let them pass.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Any

from fedqhd.core.errors import FedQHDError, nearest

PYTHON = "python"
"""`python:NAME` refers to an object that was passed from Python and is in no module; only this process has it."""
PACKAGES = {
    "sklearn": "scikit-learn",
    "torch": "torch",
    "torchhd": "torch-hd",
    "ale_py": "ale-py",
    "highway_env": "highway-env",
}
"""The packages to install for modules that users refer to as the documentation does."""
_given: dict[str, Any] = {}


def is_custom_name(name: str) -> bool:
    """Return whether a name has the form `module:name`."""
    module, _, path = name.partition(":")
    return bool(module) and all(part.isidentifier() for part in path.split("."))


def path_part(name: str) -> str:
    """Return a name, such as MinAtar/Breakout-v1 or module:Env, as a part of the name of a file or a folder."""
    return re.sub(r"[/:]", "-", name)


def find(name: str, setting: str) -> Any:
    """Return the object that `module:name` refers to, or None if the module has no such name.

    Args:
        name: The name. `python:NAME` refers to an object that was passed from Python.
        setting: The setting whose value it is, for error messages.

    Raises:
        FedQHDError: If the module cannot be imported, or the object was passed to another process.
    """
    module, _, path = name.partition(":")
    if module == PYTHON:
        if name not in _given:
            raise FedQHDError(
                f"{setting}={name!r} was an object of another Python process: define it in a module and give "
                "module:name"
            )
        return _given[name]
    try:
        thing: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = "cannot be found from here" if error.name == module else f"needs {error.name!r}, which is missing"
        package = PACKAGES.get(str(error.name).partition(".")[0])
        hint = f"; install it with pip install {package}" if package else ""
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: the module {module!r} {missing}{hint}") from error
    except Exception as error:
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: importing {module!r} raises {error!r}") from error
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing


def load(name: str, setting: str) -> Any:
    """Return the object that `module:name` refers to; like `find`, but a name that is missing raises FedQHDError."""
    thing = find(name, setting)
    if thing is None:
        module, _, path = name.partition(":")
        hint = nearest(path, dir(importlib.import_module(module)))
        raise FedQHDError(f"{setting}={name!r} cannot be loaded: {module!r} has no {path!r}{hint}")
    return thing


def name_of(thing: Any) -> str:
    """Return a name for which `find` returns the object. Strings are returned as they are.

    The name is `module:name` if the object can be imported, otherwise `python:NAME`, which is valid in this process.
    """
    if isinstance(thing, str):
        return thing
    module, path = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if module != "__main__" and path.isidentifier():
        name = f"{module}:{path}"
        with contextlib.suppress(FedQHDError):  # code run by exec() has a module that cannot be imported
            if find(name, "name") is thing:
                return name
    label = (path or type(getattr(thing, "unwrapped", thing)).__qualname__).rpartition(".")[2].strip("<>")
    name, k = f"{PYTHON}:{label}", 1
    while name in _given and _given[name] is not thing:
        k += 1
        name = f"{PYTHON}:{label}-{k}"
    _given[name] = thing
    return name
