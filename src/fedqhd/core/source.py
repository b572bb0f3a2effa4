"""The one writer of text into generated source code, for the templates of Python files and C headers.

A model is data, perhaps of a stranger, and what is exported from it is a program. Therefore no text gets into the
program as it is: a template of source code accepts integers and `Code` alone, and only this module turns other text
into `Code`, escaped for its language.
"""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import quote

from fedqhd.core.errors import FedQHDError


class Code(str):
    """Text that is source code already."""

    __slots__ = ()


def python_docstring(text: str) -> Code:
    """Escape text for a Python string between double quotes, single or triple; line breaks of the text stay.

    The result is the same text unless it has backslashes, quotes or characters that cannot be printed.
    """
    return Code("\n".join("".join(map(_python_character, line)) for line in text.split("\n")))


def _python_character(c: str) -> str:
    if c in '\\"':
        return "\\" + c
    return c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")


def c_comment(text: str) -> Code:
    """Escape text for a C comment: whatever could end it, join lines or be no ASCII becomes %XX, as in a URL.

    Without asterisks no slash can end the comment; without backslashes and question marks (which begin trigraphs) no
    line is joined with the next.
    """
    return Code(quote(text, safe=" !\"#$&'()+,-./:;<=>@[]^_`{|}~", errors="surrogatepass"))


def identifier(name: str) -> Code:
    """Return a name as an identifier: other characters become underscores, and it begins with a letter."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return Code(word if word[:1].isalpha() else f"policy_{word}")


def number(value: float, format: str = "") -> Code:
    """Return a number as source code. Raises FedQHDError if it is not finite, which no source code can express."""
    if not math.isfinite(value):
        raise FedQHDError(f"the policy has the value {value}, which cannot be exported: all numbers must be finite")
    return Code(f"{float(value):{format}}")


def finalize(value: Any) -> Code | int:
    """Return a value for a template of source code. Raises FedQHDError unless it is an integer or `Code`."""
    if isinstance(value, Code) or type(value) is int:
        return value
    raise FedQHDError(f"{str(value)[:80]!r} cannot be exported: an integer is needed, or text that was escaped")
