"""Which code the files of a run may name.

The settings and models of a run name the user's own classes and functions as `module:name`, and reading them imports
these modules. A run that somebody else made could so run anything. Every reader of such files therefore calls
`check_code` first, which lets a name pass if

- this user made the run on this machine: `remember` writes a random token to the folder of the run and, outside of it,
  which names belong to the token and which files they were imported from; or
- the user trusts the folder (`--trust`, `trust=True`): `grant`; or
- the user has given the very same name himself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.core.named import PYTHON

log = logging.getLogger(__name__)

TOKEN = "trust-token.txt"
"""The file in the folder of a run that holds its token."""
FLAG = "import the code (module:name) that the run names, although you did not make the run on this machine"
"""The help text of the flag `--trust`."""
DEPTH = 3
"""How many folders above a file its token may be: best/models/client-0.npz is the deepest file of a run."""
LENGTH = 32
"""The number of characters of a token."""

_granted: set[Path] = set()
_remembered: dict[str, dict[str, str]] = {}
"""The names and origins for each token of this process, for the case that the folder of the user cannot be written."""


def is_code(name: str) -> bool:
    """Return whether a name refers to code that would be imported. Objects passed from Python are there already."""
    return ":" in name and not name.startswith(f"{PYTHON}:")


def grant(folder: str | os.PathLike[str]) -> None:
    """Trust a file, or all files in a folder, for as long as this process lives."""
    _granted.add(Path(folder).resolve())


def remember(folder: Path, names: Iterable[str]) -> None:
    """Remember that this user made the run in a folder with the code that these names refer to."""
    code = [name for name in names if is_code(name)]
    if code and not ((folder / TOKEN).is_file() and _known(folder)):  # a run in the folder of another has its own token
        write_bytes(folder / TOKEN, secrets.token_hex(LENGTH // 2).encode())
        _record(_token_of(folder), code)
    remember_also(folder, code)


def remember_also(path: Path, names: Iterable[str]) -> None:
    """Remember further code of a run, given a file or folder in it, if this user made the run."""
    known = _known(path)
    new = [name for name in names if is_code(name) and known.get(name) != origin_of(name)]
    if known and new:
        _record(_token_of(path), new)


def _record(token: str, names: Iterable[str]) -> None:
    """Add names to those that belong to a token; several processes may do so at once."""
    origins = {name: origin_of(name) for name in names}
    _remembered.setdefault(token, {}).update(origins)
    try:
        file = _record_of(token)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("a") as f:
            f.write("".join(json.dumps(pair) + "\n" for pair in origins.items()))
    except (OSError, RuntimeError) as error:  # pathlib raises RuntimeError for a user without a home
        log.warning("this run cannot be remembered as your own, so that later commands need --trust: %s", error)


def check_code(names: Iterable[str], path: Path, given: Iterable[str] = ()) -> None:
    """Raise FedQHDError if a file names code that the user has not chosen.

    Args:
        names: The names in the file; those that do not refer to code are ignored.
        path: The file, or the folder of its run.
        given: Names that the user has given himself in this call.
    """
    unknown = {name for name in names if is_code(name)} - set(given)
    if not unknown or _granted & set(_places(path)):
        return
    known = _known(path)
    foreign = sorted(name for name in unknown if known.get(name) != origin_of(name))
    if foreign:
        what = ", ".join(f"{_shown(name)} would be imported from {_where(name)}" for name in foreign)
        which = f"run={str(path)!r}" if path.is_dir() else str(path)
        raise FedQHDError(f"{which} names code: {what}: give --trust (in Python trust=True) if you trust it")


def origin_of(name: str) -> str:
    """Return the file of the package or module that `module:name` is imported from, or "" if there is none.

    Only the outermost package is looked up, because looking up a module inside a package imports the package.
    """
    top = name.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # ValueError: no name, or a module such as __main__ that was not imported
        return ""
    if spec is None:
        return ""
    if spec.has_location and spec.origin:
        return os.path.realpath(spec.origin)
    return ", ".join(spec.submodule_search_locations or [str(spec.origin)])  # a folder without __init__, or built in


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _where(name: str) -> str:
    return origin_of(name) or "a module that cannot be found from here"


def _places(path: Path) -> list[Path]:
    """Return a file or folder and the folders above it that may be the folder of its run."""
    found = path.resolve()
    return [found, *found.parents][: DEPTH + 1]


def _token_of(path: Path) -> str:
    """Return the token of the run to which a file belongs, or "" if it has none."""
    file = next((place / TOKEN for place in _places(path) if (place / TOKEN).is_file()), None)
    if file is None:
        return ""
    with file.open("rb") as f:
        return f.read(LENGTH).decode(errors="replace")


def _known(path: Path) -> dict[str, str]:
    """Return the names that were remembered for the run to which a file belongs, and their origins."""
    token = _token_of(path)
    try:
        lines = _record_of(token).read_text().splitlines()
        return {**dict(json.loads(line) for line in lines), **_remembered.get(token, {})}
    except (OSError, ValueError, TypeError, RuntimeError):
        return _remembered.get(token, {})


def _record_of(token: str) -> Path:
    """Return the file that holds what is remembered of a token: in the user's folder for the state of programs."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "fedqhd", "runs")
    return home / f"{hashlib.sha256(token.encode()).hexdigest()[:LENGTH]}.jsonl"
