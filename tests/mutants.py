"""Messages that were good until one thing in them was made wrong, at random, in every record and field."""

from __future__ import annotations

import math

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

NAN, INF = math.nan, math.inf
SCALARS = [-1, 99, 10**12, 2**62, -(2**62), NAN, INF, -INF, -1.5, 1e300]
TEXTS = ["", "x", "Q" * 5000, "null", "[]", "[[[[", "{", '{"W": 1}', "NaN", '{"W": ["O", [1]]}', "[" * 5000]
ODD = [b"", b"\0\xff", True, [True], ["x"], [b"x"]]
LISTS = [[], [NAN], [INF, 1.0], [1e300], [-1], [2**62], [99] * 3, [0] * 1000]
CLAIMED = [10**9, 10**12]


def header(shape, dtype="<f8"):
    """An array in numpy's format that ends after its header."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def sent(data, stype="numpy.ndarray"):
    return Array(dtype="float64", shape=(1,), stype=stype, data=data)


def arrays(rng, good):
    """What may stand for an array, but for the right one."""
    value = good.numpy()
    spoilt = value.astype(complex if value.dtype.kind == "c" else float)
    if spoilt.size:
        spoilt.flat[rng.integers(spoilt.size)] = (NAN, INF, -INF, 1e200)[rng.integers(4)]
    else:
        spoilt = np.full(3, NAN)
    kinds = ("i8", "?", "S3", "U2", "M8[s]", "V4", ">f8", "i4,f8", "c16" if value.dtype.kind == "f" else "f8")
    return [
        Array(spoilt), Array(np.zeros((7, 7, 7))), Array(np.array(1.0)), Array(np.zeros((0, 3))),
        Array(np.zeros(value.shape, np.dtype(kinds[rng.integers(len(kinds))]))),
        sent(header(f"({CLAIMED[rng.integers(2)]},)")), sent(header("(-1, -1)") + bytes(8)), sent(header("(2,)", "|O")),
        sent(header("()" * 40)), sent(b""), sent(b"PK\x03\x04" + bytes(40)), sent(good.data[:-1]),
        sent(good.data + b"x"), sent(good.data, "torch.tensor"),
    ]  # fmt: skip


def pick(rng, options):
    return options[int(rng.integers(len(options)))]


def spoil(rng, content):
    """Make one thing in the content of a message wrong, and say what."""
    name = pick(rng, sorted(content))
    record = content[name]
    what = int(rng.integers(12))
    if what == 0:
        del content[name]
        return f"no {name}"
    if what == 1:
        content[pick(rng, ["more", "fitres.x", "Q" * 300])] = pick(rng, [ConfigRecord(), MetricRecord(), ArrayRecord()])
        return "a record too many"
    if what == 2:
        del content[name]
        content[name] = pick(rng, [k() for k in (ConfigRecord, MetricRecord, ArrayRecord) if k is not type(record)])
        return f"{name} of another kind"
    key = pick(rng, sorted(record)) if record else "none"
    if what == 3 or key == "none":
        record["more" + key[:200]] = Array(np.zeros(3)) if isinstance(record, ArrayRecord) else pick(rng, [1, 2.0, [1]])
        return f"{name} with a field too many"
    if what == 4:
        del record[key]
        return f"no {key}"
    if isinstance(record, ArrayRecord):
        record[key] = pick(rng, arrays(rng, record[key]))
        return f"{name}/{key} as another array"
    record[key] = pick(rng, junk(key, record))
    return f"{key} as {record[key]!r:.40}"


def junk(key, record):
    """What a field can hold on the wire, but for what is right there. Clients 0 and 1 are others than the sender."""
    good, named = record[key], {"client": [0, 1], "episodes/client": [[0], [1]]}.get(key, [])
    lists = [*LISTS, good + good] if isinstance(good, list) else LISTS
    if key in ("episodes/ret", "episodes/epsilon"):
        lists = [x for x in lists if x not in ([-1], [2**62])]
    if isinstance(record, MetricRecord):
        # A client may say that it took 99 seconds.
        return [*(x for x in SCALARS if x != 99 or not key.startswith(("cpu", "seconds"))), *lists, *named]
    return [*SCALARS, *lists, *named, *(t for t in TEXTS if t != good), *ODD]
