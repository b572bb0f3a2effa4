"""Rendering of templates, which are stored beside the code that uses them."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from fedqhd.core.source import finalize

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(name: str, **values: Any) -> str:
    """Fill in a template.

    Args:
        name: The path of the template below the package, e.g. "report/templates/page.html". In a template whose name
            ends in .html, every value is escaped. A template of source code (.py.jinja, .h.jinja) accepts integers and
            text that `fedqhd.core.source` has escaped.
        values: The values of the variables in the template. A variable without a value is an error.

    Returns:
        The rendered text.
    """
    return environment(name.endswith(SOURCES)).get_template(name).render(**values)


SOURCES = (".py.jinja", ".h.jinja")
"""The ends of the names of templates of source code."""


@cache
def environment(source: bool) -> Environment:
    """Return the Jinja environment of the templates of source code, or of all others."""
    # jinja2 is imported here because most commands never render anything.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        finalize=finalize if source else None,
        loader=PackageLoader("fedqhd", "."), autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.globals["inline"] = inline
    # The filter `tojson` escapes <, >, & and ', so that no text can end the script element that it is written into.
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return found


def inline(name: str) -> Markup:
    """Return a script or a style sheet of the package, to be inserted into a page unescaped.

    Args:
        name: The path of the file below the package, e.g. "report/vendor/uplot/uPlot.min.css".

    Returns:
        Its text, marked as safe.
    """
    from markupsafe import Markup

    return Markup((resources.files("fedqhd") / name).read_text(encoding="utf-8"))
