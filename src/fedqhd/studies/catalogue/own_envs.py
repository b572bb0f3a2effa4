"""Environments of other packages, without any tuning, beside random play.

Most are defined in examples/environments.py, so the study must be run from a checkout of the repository.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedqhd.envs.make import make_env
from fedqhd.studies.cells import CellStudy, Settings
from fedqhd.studies.study import Row, Rows, Run

COMMON = {"setting": "heterogeneous", "clients": 3, "dims": [300, 500, 800], "round_episodes": 10}
EPISODES = 30
"""The number of episodes of random play."""


def random_return(env_id: str) -> float:
    """Return the mean return of random play."""
    env, rng, returns = make_env(env_id), np.random.default_rng(0), np.zeros(EPISODES)
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    for k in range(EPISODES):
        env.reset(seed=k)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(rng.integers(actions))
            returns[k] += float(reward)
            done = terminated or truncated
    return float(returns.mean())


class OwnEnvs(CellStudy):
    """A first comparison with random play in environments of other packages."""

    name = "own-envs"
    rank = 18
    about = "environments of other packages, nothing tuned, one seed (from a checkout: some are in examples/)"
    hours = 0.1
    title = "Environments of other packages"
    text = (
        "three clients with different encoders, 300 episodes (highway-env, whose steps are slow: 40), one seed, all "
        "settings as they come (scaling finds itself): a first look, nothing tuned. Random play has, over "
        f"{EPISODES} episodes:"
    )
    seeds = (0,)
    cells = {  # noqa: RUF012
        "FrozenLake-v1, not slippery": {"env": "examples.environments:lake", **COMMON, "episodes": 300},
        "CliffWalking-v1": {"env": "examples.environments:cliff", **COMMON, "episodes": 300},
        "Taxi-v4": {"env": "Taxi-v4", **COMMON, "episodes": 300},
        # Its own settings have another learner.
        "MinAtar, Breakout": {"env": "MinAtar/Breakout-v1", "learner": "replay", **COMMON, "episodes": 300},
        "MiniGrid, empty room": {"env": "examples.environments:grid", **COMMON, "episodes": 300},
        "highway-env, light traffic": {
            "env": "examples.environments:highway", "rollout_steps": 300, "anchors": 150, "episodes": 40, **COMMON,
        },
    }  # fmt: skip

    def row(self, cell: str, settings: Settings, runs: Sequence[Run]) -> Row:
        """Return the row of a cell, with the return of random play."""
        return {**super().row(cell, settings, runs), "random": round(random_return(settings["env"]), 2)}

    def introduction(self, rows: Rows) -> str:
        """Return the introduction, with the return of random play in each environment."""
        found = ", ".join(f"{r['cell']} {r['random']:.2f}" for r in rows)
        return f"{super().introduction(rows)} {found}."
