"""The pages: the site builds without a warning, and what the map names is there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built without a warning."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_has_the_commands_and_the_reference(site):
    commands = (site / "commands" / "index.html").read_text()
    for word in ("fedqhd train", "fedqhd watch", "fedqhd federate client", "--anchor-source"):
        assert word in commands
    reference = (site / "reference" / "index.html").read_text()
    for name in REFERENCE:
        assert f'id="{name}"' in reference, name
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / path.stem / "index.html").read_text()
        assert "<progress" in page, path
        assert 'alt="Output of the cell above"' in page, path
        assert (site / "notebooks" / path.name).exists()
    # Nothing is asked of another host.
    for page in site.rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://", page.read_text()), page


REFERENCE = (
    "fedqhd.api.training.train",
    "fedqhd.api.run.Run",
    "fedqhd.linalg.ridge.compile_teacher",
    "fedqhd.federation.method.Method",
    "fedqhd.federation.method.Method.federation",
    "fedqhd.agents.learner.Learner",
    "fedqhd.encoders.base.BaseEncoder",
    "fedqhd.core.protocols.Federation",
    "fedqhd.federation.aggregate.Rule",
    "fedqhd.studies.study.Study",
    "fedqhd.runs.callback.Callback",
)
"""What a user may call or subclass."""


class Built(HTMLParser):
    """What a built page has: its text outside of code, its code, its links and pictures, and what can be linked to."""

    def __init__(self, file):
        super().__init__()
        self.text, self.code, self.links, self.ids, self._inside = "", [], [], set(), []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.text += "\n" if tag in ("p", "li", "td", "h2") else ""
        if tag in ("pre", "code", "script", "style"):
            self._inside.append(tag)
            if tag == "pre":
                self.code.append("")
        self.links += [found[name] for name in ("href", "src") if found.get(name) is not None]
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if "pre" in self._inside:
            self.code[-1] += data
        elif not self._inside:
            self.text += data


LEFTOVERS = re.compile(r".*(?:```|\*\*|\]\().*")
"""Lines with marks of Markdown that were not understood, which the builder does not notice."""


def lost(file, pages):
    """The links of a page that lead nowhere within the site."""
    found = []
    for link in pages[file].links:
        address = urlsplit(link)
        if address.scheme:
            continue
        target = (file.parent / unquote(address.path)).resolve() if address.path else file
        target = target / "index.html" if target.is_dir() else target
        known = pages[target].ids if target in pages else ()
        if not target.exists() or (address.fragment and unquote(address.fragment) not in known):
            found.append(link)
    return found


def test_every_built_page_is_whole(site):
    pages = {file: Built(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    for file, page in pages.items():
        assert LEFTOVERS.findall(page.text) == [], file
        assert all(code.strip() and "```" not in code for code in page.code), file
        assert lost(file, pages) == [], file


def test_what_is_broken_in_a_built_page_is_found(tmp_path):
    """A fence that Markdown does not understand, a missing page, a missing section and an empty block."""
    file = tmp_path / "index.html"
    file.write_text(
        "<p>```toml server.toml</p><p>a [link](x.md)</p><p>**bold**</p><p>2 * 3 <code>**kwargs</code></p>"
        "<a href='nowhere/'></a><a href='#none'></a><a href='#here' id='here'></a><pre><code> </code></pre>"
    )
    page = Built(file)
    assert LEFTOVERS.findall(page.text) == ["```toml server.toml", "a [link](x.md)", "**bold**"]
    assert page.code == [" "]
    assert lost(file, {file: page}) == ["nowhere/", "#none"]


def test_the_architecture_names_files_that_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:src|tests)/[\w/]+(?:\.py|/))`", text))
    assert len(named) > 35
    for path in named:
        assert (ROOT / path).exists(), path


def rows():
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    return re.findall(r"^\|[^|]+\| `([\w/]+\.py)` \| `([\w.]+)` \|$", text, re.M)


def test_the_map_from_the_paper_leads_somewhere():
    found = rows()
    assert len(found) > 35
    for file, name in found:
        assert (ROOT / "src" / "fedqhd" / file).exists(), file
        thing = importlib.import_module("fedqhd." + file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            thing = getattr(thing, part)


def test_the_guide_has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}" in nav, page.name
