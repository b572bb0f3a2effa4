"""Result files that were made up, to know what tables and pages must make of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

from fedqhd.runs.config import resolve
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


def write_run(folder, returns, greedy, **settings):
    """A finished run with these settings, whose clients had these returns (clients, episodes)."""
    given = {"clients": len(returns), "episodes": len(returns[0]), "out": str(folder)}
    config = resolve({}, preset="plain", shared={**settings, **given})
    rows = [{"round": 0, "client": i, "episode": k, "return": float(y), "length": 1, "epsilon": 0.1}
            for i, row in enumerate(returns) for k, y in enumerate(row)]  # fmt: skip
    final = [sum(row) / len(row) for row in returns]
    summary = {"env": config.env, "method": config.method, "setting": config.setting, "seed": config.seed,
               "clients": config.clients, "episodes": config.episodes, "final_return": sum(final) / len(final),
               "greedy_return": greedy, "final_return_per_client": final,
               "greedy_return_per_client": [greedy] * len(final), "learner": config.get("learner", "dqn"),
               "commit": "invented", "replies": {}, "split_seconds": {}, "env_steps": sum(map(len, returns)),
               "wall_seconds": 1.0, "cpu_seconds": 1.0, "bytes_up_per_round": 1.0, "bytes_down_per_round": 1.0,
               }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.to_toml())
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_group(folder, finals, greedies=None, clients=2, episodes=4, **settings):
    """A run for each final return, with seeds 0, 1, ...; each client has the same return in every episode."""
    for seed, (final, greedy) in enumerate(zip(finals, greedies or finals, strict=True)):
        write_run(folder / f"seed-{seed}", [[final] * episodes] * clients, greedy, seed=seed, **settings)
    return folder
