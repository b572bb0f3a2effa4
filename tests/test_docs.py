"""The pages: their code runs, the site builds without a warning, and what the map names is there."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys

import pytest

from conftest import ROOT
from processes import fedqhd

PAGES = (
    "tutorial",
    "extending",
    "own-environment",
    "own-encoder",
    "own-aggregation",
    "deploy",
    "choose-anchors",
    "read-the-gap",
)
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.S | re.M)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    """Blocks in their order, in one folder: a block that begins with a file's name is that file, commands are typed."""
    blocks = BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    assert blocks
    monkeypatch.chdir(tmp_path)
    session = {"__name__": "page"}
    for language, code in blocks:
        if language == "bash":
            for line in code.replace("\\\n", " ").splitlines():
                program, *args = shlex.split(line)
                assert program == "fedqhd"
                done = fedqhd(*args, cwd=tmp_path)
                assert done.returncode == 0, (line, done.stderr)
        elif name := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / name[1]).write_text(code)
        else:
            exec(compile(code, f"{page}.md", "exec"), session)


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    commands = (tmp_path / "site" / "commands" / "index.html").read_text()
    for word in ("fedqhd train", "fedqhd watch", "--anchor-source"):
        assert word in commands
    reference = (tmp_path / "site" / "reference" / "index.html").read_text()
    assert "compile_teacher" in reference
    # Nothing is asked of another host.
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://", page.read_text()), page


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
