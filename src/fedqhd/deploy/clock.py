"""The time of a federation: that of the server when it started, plus a clock that never jumps.

Flower signs messages with the time and refuses old ones, and it takes nodes and programs that have been silent for too
long for dead. All programs of the server therefore share one steady clock, which `fedqhd federate server` starts. The
clients ask the server for its time when they connect.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

TOLERATED = 5.0
"""Seconds by which clocks may differ without a word. Flower tolerates as many."""


def steady(epoch: float) -> Callable[[], float]:
    """Return the clock that reads `epoch` plus the monotonic clock, in seconds since 1970."""
    return lambda: epoch + time.monotonic()


def use_steady_clock(epoch: float) -> None:
    """Let Flower read the time of day from the steady clock in this process.

    All of Flower reads it through one function, which asks `datetime` in its module.
    """
    from flwr.supercore import date

    clock = steady(epoch)

    class Steady(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(clock(), tz)

    date.datetime = SimpleNamespace(datetime=Steady, UTC=datetime.UTC)  # type: ignore[assignment, attr-defined]


def difference(offset: float) -> str:
    """Say that the clock of this machine differs from the server's, or "" if it does not.

    Args:
        offset: The server's time minus that of this machine, in seconds.
    """
    if abs(offset) <= TOLERATED:
        return ""
    way = "behind" if offset > 0 else "ahead of"
    return (
        f"the clock of this machine is {abs(offset):,.0f} seconds {way} the server's; "
        "the federation goes by the server's clock"
    )
