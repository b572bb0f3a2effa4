"""The file summary.json, which everything reads through one function. Somebody else may have made it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import damaged
from fedqhd.core.schema import Field, ListOf, MapOf, Optional, Real, Text, Whole, fault

NAME = "summary.json"
MOST = 10**6
"""The largest number of clients."""


@dataclass(frozen=True)
class OrNone:
    """A value that there may be none of, as of a client that never answered: NaN or, if allowed, null."""

    field: Field
    null: bool = True

    def accepts(self, value: Any) -> bool:
        missing = (self.null and value is None) or (isinstance(value, float) and math.isnan(value))
        return missing or self.field.accepts(value)

    def __str__(self) -> str:
        return f"{self.field}, {'null ' * self.null}or NaN"


WORD, COUNT, SECONDS = Text(1_000), Whole(), Real(0.0)
PER_CLIENT = ListOf(OrNone(Real()), 1, MOST)
KINDS = ("refused", "absent", "left out", "late")
"""What can happen to replies that do not count as usual."""
FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("env", "method", "setting", "learner", "commit"), WORD),
    **dict.fromkeys(("aggregate", "protocol", "features", "version", "attack", "stopped", "loop"), Optional(WORD)),
    "seed": Whole(0, 2**128),
    "clients": Whole(1, MOST),
    "episodes": Whole(0),
    "steps": Optional(Whole(1)),
    "final_return": OrNone(Real(), null=False),
    "greedy_return": OrNone(Real(), null=False),
    "greedy_return_nominal": Optional(Real()),
    "final_return_per_client": PER_CLIENT,
    "greedy_return_per_client": PER_CLIENT,
    "env_steps": Whole(1),
    "wall_seconds": SECONDS,
    "cpu_seconds": SECONDS,
    "split_seconds": MapOf(SECONDS),
    "bytes_up_per_round": SECONDS,
    "bytes_down_per_round": SECONDS,
    **dict.fromkeys(("feature_bytes", "agents", "updates", "fit_alarms", "rounds_repeated"), Optional(COUNT)),
    "replies": MapOf(MapOf(COUNT), KINDS),
    "played": Optional(MapOf(COUNT)),
    "liars": Optional(ListOf(COUNT, 0, MOST)),
}
"""What a program reads of a summary; there may be more."""
PRIVACY: Mapping[str, Field] = {
    "epsilon": OrNone(Real(0.0)), "delta": Real(0.0, 1.0), "reports": COUNT, "clip": SECONDS, "noise": SECONDS,
}  # fmt: skip


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a finished run.

    Raises:
        FedQHDError: If there is none, or if it is not one.
    """
    file = folder / NAME
    try:
        summary = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise FedQHDError(f"{str(folder)!r} holds no finished run: it has no {NAME}") from None
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"it is not JSON: {error!s:.80}") from None
    wrong = summary_fault(summary)
    if wrong:
        raise damaged(file, wrong)
    return dict(summary)


def summary_fault(summary: Any) -> str:
    """Return what is wrong with a value from JSON that should be a summary, as a sentence, or ""."""
    if not isinstance(summary, dict):
        return "it is not a table of values"
    wrong = fault({name: value for name, value in summary.items() if name in FIELDS}, FIELDS)
    if not wrong and len(summary["final_return_per_client"]) != len(summary["greedy_return_per_client"]):
        wrong = "it has final and greedy returns of different numbers of clients"
    if not wrong and "privacy" in summary:
        privacy = summary["privacy"]
        wrong = fault(privacy, PRIVACY) if isinstance(privacy, dict) else "its privacy is not a table of values"
    return wrong
