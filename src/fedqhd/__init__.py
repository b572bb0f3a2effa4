"""Federated Q-learning in function space.

import fedqhd
run = fedqhd.train(env="CartPole-v1", setting="heterogeneous", out="runs/first")
action, _ = run.policy(client=0).predict(observation)
"""

import lazy_loader

# The public names are in __init__.pyi. Modules are imported on first use, which keeps `fedqhd --help` fast.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
