"""The version of the code that produced a result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from fedqhd._version import __version__

PACKAGE = Path(__file__).parent.parent


@cache
def commit() -> str:
    """Return the commit of this checkout, with "-changed" if the package differs from it.

    Without a checkout, return the version of the package.
    """

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True)

    try:
        # An installed copy may lie inside another repository, whose commit says nothing about this package.
        if git("ls-files", "--error-unmatch", "_version.py").returncode:
            return __version__
        changed = git("status", "--porcelain", "--", str(PACKAGE)).stdout.strip()
        return git("rev-parse", "--short=7", "HEAD").stdout.strip() + ("-changed" if changed else "")
    except OSError:  # git is not installed
        return __version__
