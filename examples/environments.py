"""Environments from other packages. Choose one by name, as in `fedqhd train --env examples.environments:grid`."""

import gymnasium
from gymnasium.wrappers import TimeLimit


def lake(**kwargs):
    """FrozenLake without slipping. Its discrete states are turned into one-hot vectors automatically."""
    return gymnasium.make("FrozenLake-v1", is_slippery=False, **kwargs)


def cliff(**kwargs):
    """CliffWalking with a limit of 200 steps, since it has none of its own."""
    return TimeLimit(gymnasium.make("CliffWalking-v1", **kwargs), 200)


def grid(**kwargs):
    """An empty room from MiniGrid. A wrapper removes the text that comes with its image."""
    from minigrid.envs import EmptyEnv
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(EmptyEnv(size=5, max_steps=100, **kwargs))


def highway(**kwargs):
    """A road from highway-env with less traffic than usual, because its steps are slow."""
    from highway_env.envs import HighwayEnvFast

    return HighwayEnvFast(config={"vehicles_count": 5, "simulation_frequency": 5, "duration": 20}, **kwargs)


if __name__ == "__main__":
    import fedqhd

    summary = fedqhd.train(env=lake, clients=2, dims=[100], episodes=60, learner="least-squares", out="runs/lake")
    print(f"{summary['env']}: greedy return {summary['greedy_return']:.2f}")
