"""The registry of studies, which finds them by name."""

from __future__ import annotations

from fedqhd.core.errors import FedQHDError
from fedqhd.core.registry import Registry
from fedqhd.studies.study import Study

STUDIES: Registry[Study] = Registry("study", "fedqhd.studies.catalogue", Study)
ALL = "all"
"""The word on the command line for all studies of the paper."""


def study(name: str) -> Study:
    """Return a study by its name, or a study of the user by `module:Class`.

    Raises:
        FedQHDError: If there is no such study, or if the class cannot be used as one.
    """
    found = STUDIES.find(name)()
    if ":" in name and (not found.name or found.name in STUDIES.names or not found.key):
        raise FedQHDError(
            f"study={name!r} has name={found.name!r} and key={tuple(found.key)}: it needs a name that no other "
            "study has, for its result file, and a key with the names of the values that identify a row"
        )
    return found


def every() -> list[Study]:
    """Return the studies of the package in the order in which they are listed, run and reported."""
    return sorted((kind() for kind in STUDIES.all()), key=lambda s: (s.rank, s.name))


def studies(name: str) -> list[Study]:
    """Return the studies that a name on the command line stands for: one study, or those of the paper for "all"."""
    return [s for s in every() if s.in_all] if name == ALL else [study(name)]
