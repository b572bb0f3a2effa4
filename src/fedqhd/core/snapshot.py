"""Snapshots of objects as named arrays, for checkpoints.

A class lists the attributes that are its state, and this module saves and restores them. An attribute may be an array,
a number, a list of tuples of numbers, a generator, or an object with a state of its own, whose names follow after a
dot. Arrays are restored in place, so views of them remain views.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError
from fedqhd.core.protocols import Array, Payload, under


class Stateful:
    """An object whose class lists the attributes that are its state; all others can be derived from them.

    A subclass lists only the attributes that it adds.
    """

    STATE: ClassVar[tuple[str, ...]] = ()
    """The names of attributes that are never None."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """The names of arrays that may be None."""

    def state(self) -> Payload:
        """Return everything that is needed to resume, as named arrays that share no memory with this object."""
        return snapshot(self)

    def restore(self, p: Payload) -> None:
        """Continue from a state that `state` returned. Raises FedQHDError if it is not that of such an object."""
        try:
            restore(self, p)
            self.restored()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise FedQHDError(f"the saved state does not fit a {type(self).__name__}: {error!r:.200}") from error

    def restored(self) -> None:
        """Rebuild what is derived from the state. Subclasses that derive anything extend this method."""
        return


def _declared(thing: Stateful, what: str) -> list[str]:
    """Return the names in the attribute `what` of all classes of an object, those of its base classes first."""
    return [name for cls in reversed(type(thing).__mro__) for name in vars(cls).get(what, ())]


def _key(name: str) -> str:
    """Return the name of an attribute in a snapshot."""
    return name.lstrip("_")


def snapshot(thing: Stateful) -> dict[str, Array]:
    """Return the state of an object as named arrays, all of which are copies."""
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
    """Set the state of an object from a snapshot of an object of the same class and sizes."""
    for name in _declared(thing, "STATE"):
        value, key = getattr(thing, name), _key(name)
        if hasattr(value, "state") and hasattr(value, "restore"):
            value.restore(under(saved, f"{key}."))
        elif isinstance(value, np.ndarray):
            fill(value, saved[key], key)
        else:
            setattr(thing, name, _like(value, saved[key]))
    for name in _declared(thing, "OPTIONAL"):
        found = saved.get(_key(name))
        setattr(thing, name, None if found is None else found.copy())


def fill(target: Array, saved: Array, name: str) -> None:
    """Copy a saved array into one of the same shape. Raises ValueError for any other, which numpy may broadcast."""
    if saved.shape != target.shape:
        raise ValueError(f"{name} has the shape {saved.shape}, and {target.shape} is needed")
    target[...] = saved


def _like(value: Any, array: Array) -> Any:
    """Convert a saved array to the type of `value`."""
    if isinstance(value, np.random.Generator):
        return rng.unpack(array)
    if isinstance(value, list):
        return [tuple(row) for row in array.tolist()]
    return type(value)(array.item())
