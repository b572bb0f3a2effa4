"""One DQN of Stable-Baselines3 on CartPole with the settings of RL Zoo, as a program.

It prints one line of JSON: for each goal, the CPU seconds until the mean return of the latest 20 episodes reached it,
counted from the start of training, and whether it did; and the CPU seconds that had passed before training.
"""

from __future__ import annotations

import argparse
import json
from time import process_time

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

LAST, STEPS = 20, 200_000


class Until(BaseCallback):
    """Ends the training when the highest goal is reached."""

    def __init__(self, goals: list[float]) -> None:
        super().__init__()
        self.left, self.began = sorted(goals, reverse=True), process_time()
        self.reached: dict[float, float] = {}

    def _on_step(self) -> bool:
        recent = self.model.ep_info_buffer
        mean = np.mean([e["r"] for e in recent]) if len(recent) == LAST else -np.inf
        while self.left and mean >= self.left[-1]:
            self.reached[self.left.pop()] = process_time() - self.began
        return bool(self.left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goals", type=float, nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy", gymnasium.make("CartPole-v1"), learning_rate=2.3e-3, batch_size=64, buffer_size=100_000,
        learning_starts=1000, gamma=0.99, target_update_interval=10, train_freq=256, gradient_steps=128,
        exploration_fraction=0.16, exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=args.seed,
        device="cpu", stats_window_size=LAST,
    )  # fmt: skip
    until = Until(args.goals)
    model.learn(STEPS, callback=until)
    total = process_time() - until.began
    spent = {str(goal): (until.reached.get(goal, total), goal in until.reached) for goal in args.goals}
    print(json.dumps({"before": until.began, "goals": spent}))


if __name__ == "__main__":
    main()
