"""The one error that users see, and hints for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedQHDError(Exception):
    """Something the user can put right; its text is one sentence that says how."""


def nearest(word: str, known: Iterable[str]) -> str:
    """' (did you mean X?)', or nothing where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
