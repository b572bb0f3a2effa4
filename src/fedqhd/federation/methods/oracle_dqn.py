"""Oracle DQN: one network that learns from the data of all clients, which a federation must keep apart."""

from __future__ import annotations

from typing import ClassVar

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.agents.learners.dqn import WidthSettings
from fedqhd.federation.method import Style, Values
from fedqhd.federation.methods.oracle_qhd import Oracle


class OracleDQN(Oracle):
    """The pooled network; if widths differ, it has the largest."""

    name: ClassVar[str] = "oracle-dqn"
    Settings = WidthSettings
    style: ClassVar[Style] = Style("#777777", (2, 2), rank=7)

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        return [LEARNERS.find("dqn")]

    @classmethod
    def source(cls, setting: str) -> tuple[str, str]:
        """One network on pooled data does not depend on how the clients differ, so one run serves both settings."""
        return cls.name, "homogeneous"
