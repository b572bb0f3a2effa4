"""The documentation names a test for every guarantee, and these tests exist."""

from __future__ import annotations

import re

from conftest import ROOT, TESTS


def test_every_test_that_a_page_names_exists():
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    promised = set(re.findall(r"`(test_\w+)`", text))
    written = {
        name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
    assert promised <= written, promised - written


def test_every_promise_has_a_test():
    text = (ROOT / "docs" / "reliability.md").read_text()
    tables = re.findall(r"\| guarantee \| tested by \|\n\|---\|---\|\n((?:\|.*\|\n)+)", text)
    assert len(tables) >= 4
    for row in "".join(tables).splitlines():
        assert "`test_" in row, row
