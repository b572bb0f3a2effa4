"""Compare the CPU seconds of training in `make demo` with those of the release before the compiled loop."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from common import ONE_THREAD, ROOT
from micro import Row, row

BEFORE = "36509c1"
"""The last commit at which each step of an environment was a step of Python."""
REPEATS = 2


def training_seconds(source: Path, *settings: object) -> float:
    """Return the CPU seconds that the code in the folder `source` needs to train the demo."""
    with tempfile.TemporaryDirectory() as out:
        words = ["train", "--config", source / "configs" / "demo.toml", "--engine", "local", "--out", f"{out}/run"]
        line = [sys.executable, "-m", "fedqhd", *map(str, words), *map(str, settings)]
        env = {**ONE_THREAD, "PYTHONPATH": str(source / "src")}
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=env, cwd=source)
        return float(json.loads(Path(f"{out}/run/summary.json").read_text())["cpu_seconds"])


def rows() -> Iterator[Row]:
    """Compare in turn. A short run of each comes first and fills the caches."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        kinds = (ROOT, Path(folder))
        for kind in kinds:
            training_seconds(kind, "--episodes", 20, "--eval-episodes", 1)
        spent = [[training_seconds(kind, "--seed", seed) for kind in kinds] for seed in range(REPEATS)]
    ours, before = np.median(spent, axis=0)
    yield row("training in make demo, CPU seconds, ours over the limit", f"before the compiled loop ({BEFORE})",
              ours / before, 1 / 3, at_most=True, repeats=REPEATS)  # fmt: skip
