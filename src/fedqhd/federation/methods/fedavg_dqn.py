"""FedAvg-DQN: the parameters of networks of one shape are averaged, which is Algorithm 1's exchange with DQN agents."""

from __future__ import annotations

from typing import ClassVar

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.agents.learners.dqn import WidthSettings
from fedqhd.core.config import Config
from fedqhd.core.protocols import Federation
from fedqhd.core.settings import Need
from fedqhd.envs.public import Public
from fedqhd.federation.fedqhd import ParameterAverage
from fedqhd.federation.method import Method, Style, Values
from fedqhd.federation.terms import Terms
from fedqhd.federation.wrappers.settings import AttackSettings, SecureSettings, ServerStepSettings, UplinkSettings


class FedAvgDQN(Method):
    """Parameter averaging of networks."""

    name: ClassVar[str] = "fedavg-dqn"
    Settings = WidthSettings
    style: ClassVar[Style] = Style("#009e73", (5, 1, 1, 1), rank=3)
    supported_settings: ClassVar[tuple[str, ...]] = ("homogeneous",)
    wrappers = (ServerStepSettings, UplinkSettings, SecureSettings, AttackSettings)

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        return [LEARNERS.find("dqn")]

    def federation(self, terms: Terms, public: Public) -> Federation:
        return ParameterAverage(terms.like, self.rule.combine)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(c.setting in cls.supported_settings, "setting",
             "fedavg-dqn averages parameters, and networks of different widths have none in common; give "
             "setting=homogeneous or method=distilled-feddqn")  # fmt: skip
        super().check(c, need)
