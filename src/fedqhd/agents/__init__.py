"""Agents, clients, and the models that they leave behind; the learners are one file each in `learners/`."""

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.agents.learners.least_squares import LeastSquaresQHD, LeastSquaresSettings
from fedqhd.agents.learners.online import OnlineQHD, OnlineSettings
from fedqhd.agents.learners.replay import ReplayQHD, ReplaySettings
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
]
