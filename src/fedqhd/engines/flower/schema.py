"""The schema of every message between server and clients: its records, their fields, and what each field may be.

A message has at most three records: named arrays, numbers, and settings or texts. Neither side reads a field before the
whole message has passed: no field is missing, none is unknown, and each has its type, range and length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import SType
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS

from fedqhd.core.schema import Field, Flag, Json, ListOf, Optional, Real, Text, Whole, fault, shown
from fedqhd.federation.asked import SECONDS, Asked

ARRAYS, METRICS, ABOUT = "arrays", "metrics", "about"
"""The names of the three records of a message."""
MOST_ARRAYS = 1_000
MOST_NUMBERS = 2**30
"""The largest number of arrays in a message, and of numbers in all of them together."""
MOST_CLIENTS = 10**6
MOST_EPISODES = 10**6
MOST_STEPS = 10**9
"""The largest number of clients, and of episodes or steps that a client plays at once."""
NAME = Text(200)
PRINT = Text(1_000)
"""A fingerprint."""
SIDE = Whole(1, MOST_NUMBERS)
NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
TYPES = {np.dtype(name).str: name[0] for name in NUMBERS}
"""The number formats of arrays, and the kind of each."""


def are_shapes(value: Any) -> bool:
    """Tell whether a value from JSON describes arrays: {name: [number format, shape]}, of limited size."""
    if not isinstance(value, dict) or len(value) > MOST_ARRAYS:
        return False
    for name, pair in value.items():
        if not (NAME.accepts(name) and isinstance(pair, list) and len(pair) == 2):
            return False
        if not (isinstance(pair[0], str) and pair[0] in TYPES and ListOf(SIDE, 0, 8).accepts(pair[1])):
            return False
    return sum(math.prod(shape) for _, shape in value.values()) <= MOST_NUMBERS


def are_codes(value: Any) -> bool:
    """Tell whether a value from JSON says how arrays were shortened: {name: [number format, unit]}."""
    pairs: list[Any] = list(value.values()) if isinstance(value, dict) else [None]
    return all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) and all(
        TYPES.get(str(dtype)) in ("f", "c") and Real(0.0).accepts(unit) for dtype, unit in pairs
    )


def are_terms(value: Any) -> bool:
    """Tell whether a value from JSON holds `Terms`: [one encoder or not, shapes]."""
    return isinstance(value, list) and len(value) == 2 and Flag().accepts(value[0]) and are_shapes(value[1])


def is_trial(value: Any) -> bool:
    """Tell whether a value from JSON is None or a `Trial`: [episodes, seed, keep]."""
    fields: tuple[Field, ...] = (Whole(0, MOST_EPISODES), Whole(0, 2**128), Flag())
    return value is None or (
        isinstance(value, list) and len(value) == 3 and all(f.accepts(v) for f, v in zip(fields, value, strict=True))
    )


SHAPES = Json(are_shapes, f"named shapes of at most {MOST_NUMBERS} numbers")
CODES = Json(are_codes, "the number format and the unit of each shortened array")
TERMS = Json(are_terms, "whether all clients have one encoder, and the shapes of its parameters,")
TRIED = Json(is_trial, "a trial or null")
NO_TRIAL = Json(lambda value: value is None, "null")
MASKED = frozenset({RECORD_KEY_CONFIGS, "fitres.parameters", "fitres.num_examples", "fitres.metrics", "fitres.status"})
"""The records of secure aggregation. Flower's protocol checks them."""


class Layout(NamedTuple):
    """The records of a message. None stands for a record that the message does not have."""

    about: Mapping[str, Field] | None = None
    metrics: Mapping[str, Field] | None = None
    arrays: bool = False


GREETING = Layout({"settings": Text(100_000, lines=True), "run": Text(64, characters="[0-9A-Za-z_-]"), "world": PRINT})
"""From the server, when a node joins. The name of the run becomes the name of a folder at the client."""
INTRODUCTION = Layout(
    {"client": Whole(0, MOST_CLIENTS), "fingerprint": PRINT, "like": SHAPES, "world": PRINT, "name": NAME}
)
"""The answer to it."""


def order_layout(training: bool) -> Layout:
    """Return the layout of an order, in which the server asks a client to train, to answer a trial or to finish."""
    assert GREETING.about is not None
    about = {
        "settings": GREETING.about["settings"],
        "run": GREETING.about["run"],
        "exchange": Whole(0, 2**40),
        "episodes": Whole(0, MOST_EPISODES if training else 0),
        "steps": Whole(0, MOST_STEPS if training else 0),
        "terms": TERMS,
        "first": Flag(),
        "trial": NO_TRIAL if training else TRIED,
    }
    return Layout(about, arrays=True)


def reply_layout(asked: Asked, masked: bool) -> Layout:
    """Return the layout of a reply. A masked one has its arrays in `MASKED` and describes them here."""
    about: dict[str, Field] = {"client": Whole(0, MOST_CLIENTS), "fingerprint": PRINT, "coded": CODES}
    about |= {"shapes": SHAPES} if masked else {}
    columns = {f"episodes/{k}": ListOf(v, *asked.records) for k, v in asked.columns().items()}
    metrics: dict[str, Field] = {
        "num-examples": Whole(), "weight": Real(0.0), "cpu": Real(0.0, 1e9), **columns, **SECONDS,
    }  # fmt: skip
    return Layout(about, metrics, arrays=not masked)


TRIAL = Layout(arrays=True)
"""The answer to a trial: the returns."""


def outcome_layout(sites: int) -> Layout:
    """Return the layout of a client's evaluation at the end."""
    greedy, nominal = ListOf(Real(), sites, sites), ListOf(Real(), 0, sites)
    return Layout(metrics={"greedy": greedy, "nominal": nominal, "updates": Whole(), "alarms": Optional(Whole())})


NO_OUTCOME = Layout(metrics={})
"""The evaluation of a client that the server evaluates itself."""


def message_fault(content: RecordDict, layout: Layout, besides: Set[str] = frozenset()) -> str:
    """Return what is wrong with a message, as a sentence, or "" if it fits its layout.

    Args:
        content: The records of the message, which may hold anything.
        layout: What they should hold.
        besides: The names of records that belong to another protocol and are checked there.
    """
    kinds = {ABOUT: ConfigRecord, METRICS: MetricRecord, ARRAYS: ArrayRecord}
    due = {name for name, part in zip(kinds, layout, strict=True) if part not in (None, False)}
    for name in sorted(due):
        if not isinstance(content.get(name), kinds[name]):
            return f"its record {name} is missing or of another kind"
    unknown = sorted(content.keys() - due - besides)
    if unknown:
        return f"it has the record {shown(unknown[0])}, which is unknown"
    for name, part in ((ABOUT, layout.about), (METRICS, layout.metrics)):
        wrong = "" if part is None else fault(dict(content[name]), part)
        if wrong:
            return wrong
    return arrays_fault(content[ARRAYS]) if layout.arrays else ""


def arrays_fault(record: Any) -> str:
    """Return what is wrong with the names, number formats and sizes of arrays, as a sentence, or ""."""
    if len(record) > MOST_ARRAYS:
        return f"it has {len(record)} arrays, but may have at most {MOST_ARRAYS}"
    total = 0
    for name, array in record.items():
        if not NAME.accepts(name):
            return f"an array has the name {shown(name)}, but it must be {NAME}"
        size = size_of(array)
        if size is None:
            return f"its {name} is not an array of numbers"
        total += size
    return "" if total <= MOST_NUMBERS else f"it has {total} numbers, but may have at most {MOST_NUMBERS}"


def size_of(array: FlowerArray) -> int | None:
    """Return how many numbers an array in numpy's format has; None if it is something else, or cut, or goes on.

    numpy allocates as much as the header claims before it looks for the numbers.
    """
    file = BytesIO(array.data)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        shape, _, dtype = readers[np.lib.format.read_magic(file)](file)
    except Exception:  # the header is parsed as Python, so it can be wrong in any way
        return None
    size = math.prod(shape)
    complete = min(shape, default=0) >= 0 and size * dtype.itemsize == len(array.data) - file.tell()
    return size if array.stype == SType.NUMPY and dtype.kind in "biufc" and complete else None
