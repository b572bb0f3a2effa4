"""Learners behind one interface, `fedqhd.interfaces.Agent`."""

from fedqhd.agents.qhd import LEARNERS, QHD, OnlineQHD, QHDSettings, ReplayQHD

__all__ = ["LEARNERS", "QHD", "OnlineQHD", "QHDSettings", "ReplayQHD"]
