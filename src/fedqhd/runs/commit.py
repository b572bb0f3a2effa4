"""Which state of the code made a result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from fedqhd._version import __version__

PACKAGE = Path(__file__).parent.parent


@cache
def commit() -> str:
    """The commit of this checkout, marked where the package differs from it; the version where there is no checkout."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True)

    try:
        # An installed copy may lie inside somebody else's repository, whose commit says nothing about it.
        if git("ls-files", "--error-unmatch", "_version.py").returncode:
            return __version__
        changed = git("status", "--porcelain", "--", str(PACKAGE)).stdout.strip()
        return git("rev-parse", "--short=7", "HEAD").stdout.strip() + ("-changed" if changed else "")
    except OSError:  # there is no git
        return __version__
