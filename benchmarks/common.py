"""Shared by the benchmarks: the paths of the repository and of the command, and the commit that is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMAND = str(Path(sys.executable).parent / "fedqhd")
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def head() -> str:
    """Return the abbreviated hash of the current commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()
