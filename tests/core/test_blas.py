"""Linear algebra has one thread, also in libraries that are loaded only when they are needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]

THREADS = "sorted(pool['num_threads'] for pool in threadpoolctl.threadpool_info() if pool['user_api'] == 'blas')"

LIMITED = f"""
import json, sys, threadpoolctl, numpy
from fedqhd.core.blas import single_threaded
with {{limit}}:
    import scipy.linalg
    print(json.dumps({THREADS}))
"""

TRAINED = f"""
import json, sys, threadpoolctl
import fedqhd
from worlds import CORRIDOR

class Threads(fedqhd.callbacks.Callback):
    def on_round(self, *args):
        print(json.dumps({THREADS}))

small = dict(clients=2, episodes=2, round_episodes=1, dims=[20, 30], anchors=20, eval_episodes=1, engine="local")
fedqhd.train(env=CORRIDOR, setting="heterogeneous", callbacks=[Threads()], out=sys.argv[1], **small)
"""


def threads(code: str, *args: object) -> list[int]:
    """Run code in a new process, in which nothing is loaded yet, and return the threads of each BLAS."""
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    path = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], env={**env, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))


def test_a_blas_that_is_loaded_later_has_one_thread():
    assert set(threads(LIMITED.format(limit="single_threaded()"))) == {1}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False, reason="one core")
def test_the_usual_limit_misses_a_blas_that_is_loaded_later():
    """The negative control: without `single_threaded`, the BLAS of scipy keeps one thread per core."""
    assert max(threads(LIMITED.format(limit="threadpoolctl.threadpool_limits(1)"))) > 1


def test_a_run_has_one_thread(tmp_path):
    assert set(threads(TRAINED, tmp_path / "run")) == {1}
