"""Result files that were made up, to know what tables and pages must make of them."""

from __future__ import annotations

from types import SimpleNamespace

from fedqhd.studies import registry, store
from fedqhd.studies.catalogue.main import main_row
from fedqhd.studies.presets import cells
from fedqhd.studies.study import Run

LEVEL = {"CartPole-v1": 400.0, "Acrobot-v1": -100.0, "LunarLander-v3": 150.0, "MountainCar-v0": -130.0}
BETTER = {"fedqhd": 30.0, "oracle-dqn": 50.0, "truncated-fedavg-qhd": 10.0}


def record(preset, cell, seeds=5):
    worth = LEVEL[cell.env] + BETTER.get(cell.method, 0.0)
    learner = "dqn" if "dqn" in cell.method else "least-squares"
    runs = [
        Run(SimpleNamespace(config=SimpleNamespace(seed=k)),
            {"final_return": worth + k, "greedy_return": worth + 2 * k, "cpu_seconds": 60.0 + k, "learner": learner,
             "wall_seconds": 70.0, "env_steps": 1000, "commit": "abc1234"}) for k in range(seeds)
    ]  # fmt: skip
    return main_row(preset, cell, {"command": f"fedqhd train --env {cell.env}", "episodes": 600}, runs, [])


def write_results(folder):
    """A whole table in both presets, one failed run, learning curves."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [record(p, c) for p in ("tuned", "paper") for c in cells()]
    records[3]["failed"] = [{"seed": 7, "error": "no space left"}]
    curves = [
        {"preset": r["preset"], "method": r["method"], "env": r["env"], "setting": r["setting"], "every": 5,
         "iqm": [LEVEL[r["env"]] * (2 - k / 60) for k in range(60)],
         "lo": [LEVEL[r["env"]] * (2 - k / 60) - 20 for k in range(60)],
         "hi": [LEVEL[r["env"]] * (2 - k / 60) + 20 for k in range(60)]} for r in records
    ]  # fmt: skip
    for name, rows in (("main", records), ("curves", curves)):
        store.write(folder, registry.study(name), rows)
    return folder
