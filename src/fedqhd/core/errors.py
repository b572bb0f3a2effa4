"""The exception for errors that users can fix, and hints for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedQHDError(Exception):
    """An error that the user can fix; its message is one sentence that says how."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'X'?)" for the known word X that is most similar, or "" if none is similar."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
