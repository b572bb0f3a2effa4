"""Environments of other packages, made ready: `fedqhd train --env examples.environments:grid` finds them by name."""

import gymnasium
from gymnasium.wrappers import TimeLimit


def lake(**kwargs):
    """FrozenLake without the slipping; its squares become one-hot vectors by themselves."""
    return gymnasium.make("FrozenLake-v1", is_slippery=False, **kwargs)


def cliff(**kwargs):
    """CliffWalking has no time limit: 200 steps are enough."""
    return TimeLimit(gymnasium.make("CliffWalking-v1", **kwargs), 200)


def breakout(**kwargs):
    """MinAtar's Breakout: 400 bits, flattened by themselves."""
    from minatar.gym import BaseEnv

    return TimeLimit(BaseEnv("breakout", **kwargs), 500)


def grid(**kwargs):
    """A room of MiniGrid's. It shows a text beside its picture, which a wrapper takes away."""
    from minigrid.envs import EmptyEnv
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(EmptyEnv(size=5, max_steps=100, **kwargs))


def highway(**kwargs):
    """A road of highway-env's with less traffic than usual: its steps are slow."""
    from highway_env.envs import HighwayEnvFast

    return HighwayEnvFast(config={"vehicles_count": 5, "simulation_frequency": 5, "duration": 20}, **kwargs)


if __name__ == "__main__":
    import fedqhd

    summary = fedqhd.train(env=lake, clients=2, dims=[100], episodes=60, learner="least-squares", out="runs/lake")
    print(f"{summary['env']}: greedy return {summary['greedy_return']:.2f}")
