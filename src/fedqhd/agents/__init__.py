"""Agents, clients and trained models. Each learner has its own file in `learners/`."""

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.agents.learners.least_squares import LeastSquaresQHD, LeastSquaresSettings
from fedqhd.agents.learners.online import OnlineQHD, OnlineSettings
from fedqhd.agents.learners.replay import ReplayQHD, ReplaySettings
from fedqhd.agents.model import SavedModel
from fedqhd.agents.qhd import QHD

__all__ = [
    "LEARNERS",
    "QHD",
    "Learner",
    "LeastSquaresQHD",
    "LeastSquaresSettings",
    "OnlineQHD",
    "OnlineSettings",
    "ReplayQHD",
    "ReplaySettings",
    "SavedModel",
]
