"""Compare with what else a user may pick for CartPole, in turn and on one core.

The peers are PPO in JAX over gymnax (ppo.py) and DQN of Stable-Baselines3 (sb3.py). Each runs in a process of its own.
The yardstick is a bare step of Gymnasium.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium
import numpy as np
from common import ONE_THREAD, ROOT
from micro import Row, row
from whole import SEEDS, cpu_until_written, seconds_until, sooner, step_cost

from fedqhd.studies.paper import FEDQHD, final_return

GOAL = 475
"""The return at which CartPole counts as solved."""
STEPS = 500_000
ONLINE = {"env": "CartPole-v1", "learner": "online", "dims": [500], "eta": 1.2, "epsilon_decay": 0.9, "episodes": 300}
# Found on seeds from 100 on, for our runs and for PPO (the fewest CPU seconds until 475).
OURS = ROOT / "benchmarks" / "first.toml"
SOONEST = ("--envs", 4, "--horizon", 32, "--rate", 2e-3, "--goal", GOAL)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and the processes that it starts, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def program(name: str, *arguments: object) -> dict[str, Any]:
    """Run one of the peers and return what it prints."""
    line = [sys.executable, str(ROOT / "benchmarks" / name), *map(str, arguments)]
    alone = {**ONE_THREAD, "JAX_PLATFORMS": "cpu",
             "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}  # fmt: skip
    return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, env=alone).stdout)


def bare_step(seed: int) -> float:
    """Return the CPU seconds of a step of Gymnasium's CartPole with random actions, which are drawn beforehand."""
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    actions = np.random.default_rng(seed).integers(2, size=STEPS).tolist()
    env.reset(seed=seed)
    began = process_time()
    for a in actions:
        _, _, terminated, truncated, _ = env.step(a)
        if terminated or truncated:
            env.reset()
    return (process_time() - began) / STEPS


def ppo_step(seed: int, envs: int, steps: int) -> float:
    """Return the CPU seconds of a training step of PPO after its compilation."""
    done = program("ppo.py", "--envs", envs, "--steps", steps, "--seed", seed)
    return done["training"] / done["steps"]


def ppo_until(seed: int, cache: str = "") -> tuple[float, bool]:
    """Return the CPU seconds of PPO until the goal, its start and compilation included, and whether it got there."""
    done = program("ppo.py", *SOONEST, "--seed", seed, "--cache", cache)
    return done["imports"] + done["compilation"] + done["training"], done["mean"] >= GOAL


def ours_until(seed: int) -> tuple[float, bool]:
    """Return the same for five clients with different encoders."""
    with tempfile.TemporaryDirectory() as out:
        settings = ("--config", OURS, "--preset", "plain", "--seed", seed, "--callbacks", f"stop-at:goal={GOAL}")
        return cpu_until_written(Path(f"{out}/run/stopped.json"), "train", *settings, "--out", f"{out}/run")


def stepping() -> Iterator[Row]:
    """Compare the cost of a training step."""
    many = {4: STEPS, 64: STEPS, 2048: 2 * STEPS}
    step_cost({**ONLINE, "seed": 0})  # fills the caches
    spent = [[step_cost({**ONLINE, "seed": seed}), bare_step(seed), *(ppo_step(seed, *kind) for kind in many.items())]
             for seed in SEEDS]  # fmt: skip
    ours, bare, *ppo = np.median(spent, axis=0)
    yield row("a whole online training step, CartPole-v1, D=500, ours over the limit", "a bare step of Gymnasium",
              ours / bare, 0.25, at_most=True, repeats=len(SEEDS))  # fmt: skip
    for envs, each in zip(many, ppo, strict=True):
        yield row("training steps per CPU second, CartPole-v1, online, D=500",
                  f"PPO in JAX, compiled, {envs:,} environments", each / ours, 10 if envs == 4 else None,
                  repeats=len(SEEDS))  # fmt: skip
    print(", ".join(f"{1 / s:,.0f}" for s in (ours, bare, *ppo)), "steps per CPU second")


def summary(spent: list[tuple[float, bool]]) -> dict[str, Any]:
    """Return what several runs needed, for `sooner`."""
    return {"cpu_seconds": float(np.median([s for s, _ in spent])), "runs": len(spent),
            "reached": sum(there for _, there in spent)}  # fmt: skip


def solving() -> Iterator[Row]:
    """Compare the CPU seconds until CartPole is solved, and until the paper's return."""
    paper = float(final_return(FEDQHD, "CartPole-v1", "homogeneous")["mean"])
    shared = {"env": "CartPole-v1", "learner": "least-squares", "episodes": 600}
    spent: dict[str, list[tuple[float, bool]]] = {k: [] for k in ("ours", "cold", "warm", "sb3", "shared", "trained")}
    with tempfile.TemporaryDirectory() as cache:
        ours_until(SEEDS[0])  # fills our cache
        ppo_until(SEEDS[0], cache)  # fills JAX's cache
        for seed in SEEDS:
            spent["ours"].append(ours_until(seed))
            spent["cold"].append(ppo_until(seed))
            spent["warm"].append(ppo_until(seed, cache))
            dqn = program("sb3.py", "--goals", GOAL, paper, "--seed", seed)
            (solved, there), trained = dqn["goals"][str(float(GOAL))], dqn["goals"][str(paper)]
            spent["sb3"].append((dqn["before"] + solved, there))
            spent["shared"].append(seconds_until(paper, {**shared, "seed": seed}))
            spent["trained"].append(tuple(trained))
    sums = {name: summary(each) for name, each in spent.items()}
    print({name: each["cpu_seconds"] for name, each in sums.items()})
    where, dqn = "CartPole-v1, five clients", "one DQN of Stable-Baselines3"
    for other, theirs, goal in (
        ("PPO in JAX, compilation included", "cold", 5),
        ("PPO in JAX, with its compilation cached", "warm", None),
        (dqn, "sb3", 100),
    ):
        yield sooner(f"{where} with different encoders, start-up included", sums["ours"], other, sums[theirs], goal,
                     until=f"a return of {GOAL}")  # fmt: skip
    yield sooner(where, sums["shared"], dqn, sums["trained"], 3)


def rows() -> Iterator[Row]:
    """Yield the rows of all comparisons in this file."""
    with one_core():
        yield from stepping()
        yield from solving()
