"""All studies, found by name: a file in `catalogue`, or `module:Class` for one that a user wrote."""

from __future__ import annotations

from fedqhd.core.errors import FedQHDError
from fedqhd.core.registry import Registry
from fedqhd.studies.study import Study

STUDIES: Registry[Study] = Registry("study", "fedqhd.studies.catalogue", Study)
ALL = "all"


def study(name: str) -> Study:
    """Return the study of this name.

    Args:
        name: One of ours, or `module:Class`.
    """
    found = STUDIES.find(name)()
    if ":" in name and (not found.name or found.name in STUDIES.names or not found.key):
        raise FedQHDError(
            f"study={name!r} has name={found.name!r} and key={tuple(found.key)}: it needs a name that no other study "
            "has, which its result file is called by, and the values by which its rows are told apart"
        )
    return found


def every() -> list[Study]:
    """Return our studies in the order in which they are listed, made and reported."""
    return sorted((kind() for kind in STUDIES.all()), key=lambda s: (s.rank, s.name))


def studies(name: str) -> list[Study]:
    """Return what a word of the command line stands for: one study, or those of the paper for `all`."""
    return [s for s in every() if s.in_all] if name == ALL else [study(name)]
