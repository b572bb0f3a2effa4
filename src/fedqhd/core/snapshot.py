"""Snapshots of objects as named arrays, for checkpoints: a class names its state, and this saves and restores it.

A value is saved by what it is: an array, a number, a list of tuples of numbers, a generator, or an object that has a
state of its own, whose names follow after a dot. An array is restored in place, so views of it stay views.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedqhd.core import rng
from fedqhd.core.protocols import Array, Payload, under


class Stateful:
    """An object whose class says which of its attributes are its state; everything else can be derived from them.

    A subclass lists only what it adds.
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    """The names of attributes that are always there."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """The names of arrays that may be None."""

    def state(self) -> Payload:
        """All that going on from here needs, as named arrays that share no memory with this object."""
        return snapshot(self)

    def restore(self, p: Payload) -> None:
        """Become what `state` described."""
        restore(self, p)
        self.restored()

    def restored(self) -> None:
        """Derive anew what depends on the state. Subclasses that have such things extend this."""
        return


def _declared(thing: Stateful, what: str) -> list[str]:
    """The names that the classes of an object list, those of its base first."""
    return [name for cls in reversed(type(thing).__mro__) for name in vars(cls).get(what, ())]


def _key(name: str) -> str:
    """The name of an attribute in a snapshot."""
    return name.lstrip("_")


def snapshot(thing: Stateful) -> dict[str, Array]:
    """The state of an object as named arrays, all of them copies."""
    saved: dict[str, Array] = {}
    for name in _declared(thing, "STATE"):
        value, key = getattr(thing, name), _key(name)
        if hasattr(value, "state") and hasattr(value, "restore"):
            saved |= {f"{key}.{k}": v for k, v in value.state().items()}
        elif isinstance(value, np.random.Generator):
            saved[key] = rng.pack(value)
        else:
            saved[key] = np.array(value)
    optional = {_key(name): getattr(thing, name) for name in _declared(thing, "OPTIONAL")}
    return saved | {key: value.copy() for key, value in optional.items() if value is not None}


def restore(thing: Stateful, saved: Payload) -> None:
    """Set the state of an object from a snapshot of one like it."""
    for name in _declared(thing, "STATE"):
        value, key = getattr(thing, name), _key(name)
        if hasattr(value, "state") and hasattr(value, "restore"):
            value.restore(under(saved, f"{key}."))
        elif isinstance(value, np.ndarray):
            value[:] = saved[key]
        else:
            setattr(thing, name, _like(value, saved[key]))
    for name in _declared(thing, "OPTIONAL"):
        found = saved.get(_key(name))
        setattr(thing, name, None if found is None else found.copy())


def _like(value: Any, array: Array) -> Any:
    """What was saved as an array, as something of the same kind as `value`."""
    if isinstance(value, np.random.Generator):
        return rng.unpack(array)
    if isinstance(value, list):
        return [tuple(row) for row in array.tolist()]
    return type(value)(array.item())
