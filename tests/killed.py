"""Kills runs with SIGKILL at random moments, resumes them, and compares with a run that was never killed.

    python tests/killed.py FOLDER TRIALS SEED

One process imports everything once and forks the runs, so that a trial costs a run and not a start of Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import fedqhd.report.figures
import fedqhd.report.terminal  # noqa: F401  (all that a run imports, before the forks)
from fedqhd.agents.policy import model_path
from fedqhd.core.blas import single_threaded
from fedqhd.ui.cli import main

SMALL = "--preset plain --env CartPole-v1 --clients 3 --eval-episodes 2 --seed 3"
BY_EPISODES, BY_STEPS = "--episodes 20 --round-episodes 2", "--steps 400 --round-steps 37"
DIFFERENT = "--setting heterogeneous --dims 64 96 --anchors 40"
KINDS = [
    "--setting homogeneous --learner replay --dims 64 --batch-size 8",
    f"{DIFFERENT} --learner online --late 0.4 --too-few repeat",
    f"{DIFFERENT} --learner least-squares --attack stale --liars 0.4 --anchor-source teacher",
    f"{DIFFERENT} --learner replay --batch-size 8 --anchor-source visited --participation 0.6 --present 2=2:",
    "--setting homogeneous --learner least-squares --dims 64 --exchange statistics",
    f"{DIFFERENT} --learner least-squares --attack drift --liars 0.4 --anchor-source teacher --aggregate played",
    f"{DIFFERENT} --learner replay --batch-size 8 --anchor-source teacher --participation 0.7 {BY_STEPS}",
]
ENGINES = ("local", "process")
TIMES = ("wall_seconds", "cpu_seconds", "split_seconds")


def start(kind: str, folder: Path, engine: str) -> int:
    """`fedqhd train --resume` in a fork; its process id."""
    child = os.fork()
    if child:
        return child
    length = "" if BY_STEPS in kind else BY_EPISODES
    settings = [*SMALL.split(), *kind.split(), *length.split()]
    with contextlib.suppress(BaseException):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os._exit(main(["train", *settings, "--engine", engine, "--out", str(folder), "--resume"]))
    os._exit(70)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def result(folder: Path) -> tuple[bytes, dict, list[bytes], list[str]]:
    """All that a run leaves behind, but for what its clocks measured and where it is."""
    summary = {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k not in TIMES}
    models = [model_path(folder, i).read_bytes() for i in range(3)]
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))
    return (folder / "metrics.jsonl").read_bytes(), summary, models, files


def trial(kind: str, folder: Path, seconds: float, draw: random.Random) -> int:
    """Kill at up to three random moments of the run's length, then let it end. How often it was hit alive.

    Each time it goes on in this process or in workers, by chance: engines give the same bits.
    """
    hits = 0
    for _ in range(draw.randint(1, 3)):
        child = start(kind, folder, draw.choice(ENGINES))
        time.sleep(draw.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        hits += ended(child) == -signal.SIGKILL
    code = ended(start(kind, folder, draw.choice(ENGINES)))
    assert code == 0, f"resuming ended with {code}"
    return hits


def run(folder: Path, trials: int, seed: int) -> int:
    draw, hits = random.Random(seed), 0
    whole, seconds = {}, {}
    for n in range(trials):
        kind = KINDS[n % len(KINDS)]
        if kind not in whole:
            # The first run compiles and warms up, the last is timed; they must agree as well.
            for engine in reversed(ENGINES):
                began = time.perf_counter()
                assert ended(start(kind, folder / f"{n}-{engine}", engine)) == 0
                seconds[kind] = time.perf_counter() - began
            whole[kind], other = (result(folder / f"{n}-{engine}") for engine in ENGINES)
            assert other == whole[kind]
        hits += trial(kind, folder / "killed", seconds[kind], draw)
        assert result(folder / "killed") == whole[kind], f"trial {n}, {kind}: another result"
        shutil.rmtree(folder / "killed")
    return hits


if __name__ == "__main__":
    where, trials, seed = sys.argv[1:]
    with single_threaded():
        print(f"{trials} runs killed {run(Path(where), int(trials), int(seed))} times, all ended with the same bits")
