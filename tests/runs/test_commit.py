"""Which state of the code a result names."""

from __future__ import annotations

import subprocess

import pytest

from fedqhd._version import __version__
from fedqhd.runs import commit as module


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A repository with a package in it."""
    home = tmp_path / "src" / "fedqhd"
    home.mkdir(parents=True)
    (home / "_version.py").write_text("__version__ = '0'\n")
    monkeypatch.setattr(module, "PACKAGE", home)
    module.commit.cache_clear()
    yield home
    module.commit.cache_clear()


def git(folder, *words):
    own = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkout_names_its_commit_and_whether_it_was_changed(package, tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "--short=7", "HEAD")
    (tmp_path / "results.json").write_text("[]")  # what lies outside the package made no result
    assert module.commit() == head
    module.commit.cache_clear()
    (package / "new.py").write_text("")
    assert module.commit() == f"{head}-changed"


def test_somebody_elses_repository_says_nothing(package, tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "theirs", "--allow-empty")
    assert module.commit() == __version__


def test_without_git_it_is_the_version(package, monkeypatch):
    assert module.commit() == __version__
    module.commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert module.commit() == __version__
