"""Learners behind one interface, `fedqhd.core.protocols.Agent`."""

from collections.abc import Mapping

from fedqhd.agents.least_squares import LeastSquaresQHD
from fedqhd.agents.online import OnlineQHD
from fedqhd.agents.qhd import QHD, QHDSettings
from fedqhd.agents.replay import ReplayQHD

LEARNERS: Mapping[str, type[QHD]] = {"replay": ReplayQHD, "online": OnlineQHD, "least-squares": LeastSquaresQHD}

__all__ = ["LEARNERS", "QHD", "LeastSquaresQHD", "OnlineQHD", "QHDSettings", "ReplayQHD"]
