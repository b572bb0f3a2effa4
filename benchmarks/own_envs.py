"""Environments of other packages with nothing tuned for them, beside random play."""

from __future__ import annotations

import os
import sys

import numpy as np
from cells import ROOT, run_cells

from fedqhd.envs.make import make_env

os.chdir(ROOT)
sys.path.append(str(ROOT))

COMMON = "--setting heterogeneous --clients 3 --dims 300 500 800 --round-episodes 10"
ENVS = {
    "FrozenLake-v1, not slippery": "examples.environments:lake",
    "CliffWalking-v1": "examples.environments:cliff",
    "Taxi-v4": "Taxi-v4",
    "MinAtar, Breakout": "examples.environments:breakout",
    "MiniGrid, empty room": "examples.environments:grid",
    "highway-env, light traffic": "examples.environments:highway --rollout-steps 300 --anchors 150 --episodes 40",
}
EPISODES = 30


def random_return(env_id: str) -> float:
    env, rng, returns = make_env(env_id), np.random.default_rng(0), np.zeros(EPISODES)
    for k in range(EPISODES):
        env.reset(seed=k)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(rng.integers(env.action_space.n))
            returns[k] += float(reward)
            done = terminated or truncated
    return float(returns.mean())


random = ", ".join(f"{name} {random_return(env.split()[0]):.2f}" for name, env in ENVS.items())
run_cells(
    "own-envs",
    "Environments of other packages",
    "Made by `make own-envs`: three clients with different encoders, 300 episodes (highway-env, whose steps are slow: "
    "40), one seed, all settings as they come (scaling finds itself): a first look, nothing tuned. Random play has, "
    f"over {EPISODES} episodes: {random}.",
    {
        name: f"--env {env} {COMMON} {'' if '--episodes' in env else '--episodes 300'}".split()
        for name, env in ENVS.items()
    },
    (0,),
    {},
)
