"""Show that our DQN is a fair baseline: compare it with published returns and, on CartPole, with Stable-Baselines3.

Both DQNs have the same network, minibatches, updates per step, target period, memory, scaling, number of steps and
Huber loss (that of Stable-Baselines3 is linear from an error of 1 on, so its rewards are divided by our threshold). The
one of Stable-Baselines3 has no double-Q, and its epsilon and step size decay with steps instead of episodes. The CPU
time is that of training; the two are measured in turn in one process.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
import torch
from common import ROOT, head
from gymnasium.wrappers import TransformObservation, TransformReward
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from threadpoolctl import threadpool_limits

from fedqhd.core.config import Config
from fedqhd.envs.make import make_env
from fedqhd.runs.build import build
from fedqhd.runs.config import resolve
from fedqhd.runs.run import train

SEEDS = (0, 1, 2)
BESIDE = "CartPole-v1"
# For each environment, our number of episodes and the greedy return that a DQN should reach. Published returns (RL-Zoo
# and CleanRL, after 50,000 to 120,000 steps) are 500 and 488.7 on CartPole, -76.6 and -91.5 on Acrobot, -100.8 and -195
# on MountainCar, and 154 on LunarLander.
CASES = {
    "CartPole-v1": (400, 475),
    "Acrobot-v1": (700, -90),
    "MountainCar-v0": (400, -130),
    "LunarLander-v3": (350, 150),
}


def returns(values: list[float]) -> str:
    """Format the mean of some returns, followed by each of them."""
    return f"{np.mean(values):.1f} ({', '.join(map(str, values))})"


def settings(env: str, seed: int, out: Path) -> Config:
    """Return the settings of a run of one DQN."""
    episodes, _ = CASES[env]
    return resolve(
        {"env": env, "method": "oracle-dqn", "setting": "homogeneous", "clients": 1, "episodes": episodes,
         "eval_episodes": 100, "seed": seed, "out": str(out)},
        preset="plain",
    )  # fmt: skip


def theirs(c: Config, steps: int) -> tuple[float, float]:
    """Return the greedy return and the CPU seconds of Stable-Baselines3's DQN with these settings."""
    clients, world = build(c)

    def scaled(env):
        space = clients[0].envs[0].observation_space
        return Monitor(TransformObservation(env, world.scaler, type(space)(-np.inf, np.inf, space.shape)))

    # The fraction of the run after which our epsilon has reached its floor.
    fraction = min(1.0, np.log(c.epsilon_end) / np.log(c.epsilon_decay) / c.episodes)
    training = TransformReward(scaled(make_env(c.env)), lambda r: r / c.huber)
    model = DQN(
        "MlpPolicy", training, buffer_size=c.replay_size, batch_size=c.batch_size,
        learning_rate=lambda left: c.lr * c.eta_decay ** (c.episodes * (1 - left)),
        learning_starts=c.learning_starts, train_freq=c.update_every, gradient_steps=c.gradient_steps, gamma=c.gamma,
        target_update_interval=c.target_steps, tau=c.target_tau,
        exploration_fraction=fraction, exploration_final_eps=c.epsilon_end,
        policy_kwargs={"net_arch": [c.widths[0]] * 2}, seed=c.seed, device="cpu",
    )  # fmt: skip
    start = process_time()
    model.learn(steps)
    spent = process_time() - start
    return float(evaluate_policy(model, scaled(make_env(c.env)), n_eval_episodes=100)[0]), spent


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for env, (_, wanted) in CASES.items():
        row = {
            "env": env,
            "wanted": wanted,
            "greedy_return": [],
            "env_steps": [],
            "cpu_seconds": [],
            "seeds": list(SEEDS),
        }
        row |= {"command": "python benchmarks/dqn.py", "commit": head(), "sb3_greedy_return": [], "sb3_cpu_seconds": []}
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                config = settings(env, seed, Path(folder))
                summary = train(config)
            for key in ("greedy_return", "env_steps", "cpu_seconds"):
                row[key].append(round(summary[key], 1))
            if env == BESIDE:
                greedy, spent = theirs(config, summary["env_steps"])
                row["sb3_greedy_return"].append(round(greedy, 1))
                row["sb3_cpu_seconds"].append(round(spent, 1))
            print(env, {k: v[-1] for k, v in row.items() if isinstance(v, list) and v}, flush=True)
        rows.append(row)
    (ROOT / "results" / "dqn.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "# One DQN alone",
        "",
        f"Made by `python benchmarks/dqn.py`, commit `{head()}`: greedy return over 100 episodes, mean of three seeds "
        "and",
        "each, and what a DQN should reach by published figures (see benchmarks/dqn.py).",
        "",
        "| | steps | wanted | greedy return |",
        "|---|---:|---:|---|",
    ]
    for r in rows:
        lines.append(f"| {r['env']} | {np.mean(r['env_steps']):,.0f} | {r['wanted']} | {returns(r['greedy_return'])} |")
    beside = next(r for r in rows if r["env"] == BESIDE)
    ratio = np.sum(beside["sb3_cpu_seconds"]) / np.sum(beside["cpu_seconds"])
    lines += [
        "",
        f"Stable-Baselines3's DQN with the same settings and number of steps on {BESIDE}:",
        f"{returns(beside['sb3_greedy_return'])}, in {ratio:.1f} times our CPU seconds (taken in turn in one process).",
    ]
    (ROOT / "results" / "dqn.md").write_text("\n".join(lines) + "\n")
    print("written to results/dqn.md and results/dqn.json")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
