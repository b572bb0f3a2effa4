"""The exception for errors that users can fix, and hints for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


class FedQHDError(Exception):
    """An error that the user can fix; its message is one sentence that says how."""


SIMILAR = 0.65
"""How similar a word must be to a known one for a hint, from 0 to 1: dqm and dqn are, but Nope and Hopper are not."""


def nearest(word: str, known: Iterable[str], part: Callable[[str], str] = str) -> str:
    """Return " (did you mean 'X'?)" for the known word X that is most similar, or "" if none is similar.

    Args:
        word: A word that is not known.
        known: The words that are.
        part: The part of each word that is compared; of known words with the same part, the last one is suggested.
    """
    parts = {part(x): x for x in known}
    near = difflib.get_close_matches(part(word), parts, n=1, cutoff=SIMILAR)
    return f" (did you mean {parts[near[0]]!r}?)" if near else ""
