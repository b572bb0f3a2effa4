"""Compare whole runs, in turn in one process and on one core unless a function says otherwise."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time, sleep
from typing import Any

import numpy as np
from common import COMMAND, ONE_THREAD, ROOT
from micro import Row, row

from fedqhd.callbacks import Callback, StopAt
from fedqhd.runs.config import resolve
from fedqhd.runs.outcome import LAST
from fedqhd.runs.run import train
from fedqhd.studies.paper import FEDQHD

REPEATS = 3
# Episodes in which five clients that have learned little make about 5,000 steps.
EPISODES = {"CartPole-v1": 40, "Acrobot-v1": 2, "LunarLander-v3": 10, "MountainCar-v0": 5}
# The same for about 40,000 steps: the first round, which encodes and factorises the anchors, is expensive.
LONGER = {"CartPole-v1": 120, "Acrobot-v1": 16, "LunarLander-v3": 80, "MountainCar-v0": 40}
# All methods learn from one minibatch of 32 at every step.
CADENCE = {"learner": "replay", "batch_size": 32, "update_every": 1, "gradient_steps": 1, "learning_starts": 32}
COST = ROOT / "results" / "cost.json"
SEEDS = (0, 1, 2)


def finished(settings: Mapping[str, Any], *callbacks: Callback) -> dict[str, Any]:
    """Make a run and return its summary."""
    with tempfile.TemporaryDirectory() as out:
        common = {"engine": "local", "eval_episodes": 1, "out": f"{out}/run"}
        config = resolve({}, preset="plain", shared={**common, **settings})
        return train(config, callbacks=callbacks)


def step_cost(settings: Mapping[str, Any]) -> float:
    """Return the CPU seconds of a run per environment step."""
    summary = finished(settings)
    return float(summary["cpu_seconds"] / summary["env_steps"])


def compare(kinds: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the median CPU seconds per step of each kind of run, measured in turn."""
    spent = [[step_cost({**kind, "seed": seed}) for kind in kinds] for seed in range(REPEATS + 1)][1:]
    return [float(x) for x in np.median(spent, axis=0)]


def steps() -> Iterator[Row]:
    """Compare the cost of a step of FedQHD with that of the DQN methods."""
    for env, episodes in EPISODES.items():
        one = {**CADENCE, "env": env, "episodes": episodes, "setting": "homogeneous", "widths": [128]}
        large, small, dqn = compare([{**one, "dims": [10_000]}, {**one, "dims": [2000]},
                                     {**one, "method": "fedavg-dqn"}])  # fmt: skip
        for D, ours, goal in (("10,000", large, 3), ("2,000", small, 10)):
            yield row(f"a step of a run on {env}, one encoder, D={D}", "fedavg-dqn", dqn / ours, goal, repeats=REPEATS)
        longer = LONGER[env]
        other = {**one, "setting": "heterogeneous", "episodes": longer, "round_episodes": longer // 2}
        ours, distilled = compare([{**other, "dims": [500, 1000, 2000, 5000, 10_000]},
                                   {**other, "method": "distilled-feddqn", "widths": [64, 96, 128]}])  # fmt: skip
        yield row(f"a step of a run on {env}, different encoders", "distilled-feddqn", distilled / ours, 6,
                  repeats=REPEATS)  # fmt: skip


def seconds_until(goal: float, settings: Mapping[str, Any]) -> tuple[float, bool]:
    """Return the CPU seconds until a run reached the goal (or ended without), and whether it did."""
    began = process_time()
    summary = finished(settings, StopAt(goal, last=LAST))
    return process_time() - began, "stopped" in summary


def until() -> Iterator[Row]:
    """Compare with our own DQN methods, all of them tuned.

    The numbers come from the runs of the main table, since repeating those would take hours.
    """
    cells = {(r["env"], r["setting"], r["method"]): r["until"] for r in json.loads(COST.read_text())["rows"]
             if r["preset"] == "tuned"} if COST.exists() else {}  # fmt: skip
    for setting, other in (("homogeneous", "fedavg-dqn"), ("heterogeneous", "distilled-feddqn")):
        for env in EPISODES:
            mine, theirs = cells.get((env, setting, FEDQHD)), cells.get((env, setting, other))
            if mine and theirs:
                yield sooner(f"{env}, {setting}", mine, other, theirs, 10)


def sooner(
    where: str,
    mine: Mapping[str, Any],
    other: str,
    theirs: Mapping[str, Any],
    goal: float | None,
    until: str = "the paper's return",
) -> Row:
    """Return the row that compares two methods by the CPU seconds until they reach the goal.

    A run that does not reach the goal counts with all of its CPU seconds, which is a lower bound.
    """

    def missed(u: Mapping[str, Any]) -> str:
        short = u["runs"] - u["reached"]
        return f" ({short} of {u['runs']} runs did not get there)" if short else ""

    return row(f"CPU until {until}, {where}{missed(mine)}", f"{other}{missed(theirs)}",
               theirs["cpu_seconds"] / mine["cpu_seconds"], goal, repeats=mine["runs"])  # fmt: skip


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


def command(*arguments: object, **environment: str) -> tuple[float, int]:
    """Return the CPU seconds and the peak memory in bytes of `fedqhd ...`, with these environment variables.

    A small process starts the command, because the peak of a child process includes that of its parent at the fork.
    """
    line = [sys.executable, "-c", MEASURED, COMMAND, *map(str, arguments)]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, env={**ONE_THREAD, **environment})
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


def run_of(*settings: object) -> tuple[dict[str, Any], int]:
    """Run `fedqhd train ...` in its own process and return its summary and its peak memory in bytes."""
    with tempfile.TemporaryDirectory() as out:
        _, peak = command("train", *settings, "--eval-episodes", 1, "--out", f"{out}/run")
        return json.loads(Path(f"{out}/run/summary.json").read_text()), peak


def engines() -> Iterator[Row]:
    """Compare the process engine with the local one, by wall-clock time on two cores.

    Every run has its own process. Otherwise the local engine could reuse memory that an earlier run has allocated,
    whereas the workers could not.
    """
    repeats = 7  # the speed of a core varies from second to second, and the slower core decides
    spent = [
        [run_of("--env", "Acrobot-v1", "--learner", "replay", "--clients", 10, "--episodes", 12, "--dims", 2000,
                "--round-episodes", 3, "--engine", engine, "--seed", seed)[0]["wall_seconds"]
         for engine in ("local", "process")]
        for seed in range(repeats)
    ]  # fmt: skip
    local, process = np.median(spent, axis=0)
    yield row("process engine on 2 cores, ten clients, wall seconds", "local engine", local / process, 1.8,
              repeats=repeats)  # fmt: skip


def fleet_run(clients: int, episodes: int, *others: object) -> tuple[float, int]:
    """Return the CPU seconds per environment step and the peak memory in bytes."""
    summary, peak = run_of("--env", "CartPole-v1", "--clients", clients, "--episodes", episodes, "--learner", "online",
                           "--dims", 500, "--eta", 1e-4, "--epsilon-decay", 1, "--engine", "local",
                           "--round-episodes", 5, *others)  # fmt: skip
    return summary["cpu_seconds"] / summary["env_steps"], peak


def fleet() -> Iterator[Row]:
    """Compare federations of 5 to 10,000 clients that make about the same number of steps in all.

    Of 10,000 clients, a tenth take part in a round.
    """
    tenth = ("--participation", 0.1)
    fleets = {5: (2000,), 100: (100,), 500: (20,), 1000: (10,), 10_000: (10, *tenth)}
    spent = [[fleet_run(clients, *rest) for clients, rest in fleets.items()] for _ in range(REPEATS)]
    cost, memory = (dict(zip(fleets, each, strict=True)) for each in np.median(spent, axis=0).T)
    for clients, goal in ((100, 1.15), (1000, 1.15), (10_000, None)):
        yield row(f"a step of one of {clients:,} clients, D=500, ours over the limit", "a step of one of five",
                  cost[clients] / cost[5], goal, at_most=True, repeats=REPEATS)  # fmt: skip
    for clients, goal in ((1000, 6), (10_000, None)):
        yield row(f"memory of {clients:,} clients, GB, ours over the limit", "1 GB", memory[clients] / 1e9, goal,
                  at_most=True, repeats=REPEATS)  # fmt: skip
    sizes, peaks = np.array(list(memory)), np.array(list(memory.values()))
    line = np.polynomial.Polynomial.fit(sizes, peaks, 1)(sizes)
    yield row("memory of 5, 100, 500, 1,000 and 10,000 clients, ours over the limit", "the straight line nearest to "
              "them", float(np.maximum(peaks / line, line / peaks).max()), 1.1, at_most=True,
              repeats=REPEATS)  # fmt: skip
    print(", ".join(f"{clients:,} clients: {peak / 1e6:.0f} MB" for clients, peak in memory.items()))
    different = ("--setting", "heterogeneous", "--anchors", 200)
    few, many = fleet_run(5, 2000, *different), fleet_run(1000, 100, *tenth, *different)
    yield row("a step of one of 1,000 clients with different encoders, a tenth of which take part in a round, ours "
              "over the limit", "a step of one of five with different encoders", many[0] / few[0], None, at_most=True,
              repeats=1)  # fmt: skip
    yield row("memory of 1,000 clients with different encoders, GB, ours over the limit", "1 GB", many[1] / 1e9, None,
              at_most=True, repeats=1)  # fmt: skip


def cpu_until_written(file: Path, *arguments: object) -> tuple[float, bool]:
    """Return the CPU seconds of `fedqhd ...` until it writes a file, or until its end, and whether it wrote it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [COMMAND, *map(str, arguments)]
    run = subprocess.Popen(line, stdout=subprocess.DEVNULL, env=ONE_THREAD)
    while not (written := file.exists() and file.stat().st_size > 0) and run.poll() is None:
        sleep(0.002)
    run.kill()
    if run.wait() > 0:
        raise RuntimeError(f"{' '.join(line)} ended with exit code {run.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, written


def first_episode() -> float:
    """Return the CPU seconds from the start of `fedqhd train` until it has recorded its first episode."""
    with tempfile.TemporaryDirectory() as out:
        return cpu_until_written(Path(f"{out}/run/metrics.jsonl"), "train", "--engine", "local", "--clients", 1,
                                 "--round-episodes", 1, "--out", f"{out}/run")[0]  # fmt: skip


def starting() -> Iterator[Row]:
    """Measure the CPU seconds that commands take to start. The first call of each fills the caches and is ignored."""
    with tempfile.TemporaryDirectory() as out:
        one = ("train", "--clients", 1, "--episodes", 1, "--eval-episodes", 1, "--out", f"{out}/run", "--overwrite")
        for name, seconds, goal in (
            ("fedqhd --help", lambda: command("--help")[0], 0.3),
            ("the first episode of training", first_episode, 2),
            ("a whole run of one episode, with its models and figure", lambda: command(*one)[0], None),
        ):
            spent = [seconds() for _ in range(REPEATS + 1)][1:]
            yield row(f"{name}, ours over the limit", "1 second", float(np.median(spent)), goal, at_most=True,
                      repeats=REPEATS)  # fmt: skip
        for learner in ("online", "replay", "least-squares"):
            with tempfile.TemporaryDirectory() as empty:
                seconds, _ = command(*one, "--learner", learner, "--engine", "local", NUMBA_CACHE_DIR=empty)
            yield row(f"the first run on a machine, which compiles the kernels of {learner}, ours over the limit",
                      "1 second", seconds, 15, at_most=True, repeats=1)  # fmt: skip
