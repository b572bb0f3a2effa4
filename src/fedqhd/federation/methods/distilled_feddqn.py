"""Distilled FedDQN: networks of any shape are distilled towards the mean of their softmax policies at anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.agents.learners.dqn import WidthSettings
from fedqhd.core.config import Config
from fedqhd.core.protocols import Client, Expected, Federation, Payload, Reply
from fedqhd.core.settings import Need, setting
from fedqhd.envs.anchors import MOVING
from fedqhd.envs.public import Public
from fedqhd.federation.fedqhd import AnchorCompile
from fedqhd.federation.method import Method, Style, Values
from fedqhd.federation.terms import Terms
from fedqhd.federation.wrappers.settings import AttackSettings, PrivacySettings, SecureSettings, UplinkSettings


@dataclass(frozen=True)
class DistillationSettings(WidthSettings):
    """The settings of `method=distilled-feddqn` itself."""

    title: ClassVar[str] = "DQN: distillation"

    temperature: float = setting(1.0, "temperature of the softmax, softmax(Q / temperature)", above=0)


@dataclass(frozen=True, eq=False)
class Distilled(AnchorCompile):
    """The teacher is the mean softmax policy, p = sum_i pi_i softmax(Q_i / T), at the anchors; each client takes
    gradient steps on KL(p || softmax(Q / T))."""

    temperature: float = field(default=1.0, kw_only=True)

    def report(self, client: Client, teacher: Payload | None) -> Payload:
        z = client.agent.q(self.anchors) / self.temperature
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return {"p": e / e.sum(axis=1, keepdims=True)}

    def expects(self, teacher: Payload | None) -> Mapping[str, Expected] | None:
        return {"p": Expected((len(self.anchors), self.actions), "f", least=0.0)}

    def aggregate(self, state: Payload, replies: Sequence[Reply]) -> tuple[Payload, Payload]:
        return state, {"p": self.combine(replies, "p")}

    def teaches(self, teacher: Payload) -> Mapping[str, Expected]:
        return self.expects(teacher) or {}

    def install(self, client: Client, teacher: Payload) -> None:
        # The values T log p represent the teacher, because softmax(T log p / T) = p.
        client.agent.fit_anchors(self.anchors, self.temperature * np.log(np.maximum(teacher["p"], 1e-30)))


class DistilledFedDQN(Method):
    """Federated distillation between networks by gradient steps."""

    name: ClassVar[str] = "distilled-feddqn"
    Settings = DistillationSettings
    style: ClassVar[Style] = Style("#cc79a7", (3, 1, 1, 1, 1, 1), rank=4)
    # A larger step of probabilities would leave the simplex.
    wrappers = (UplinkSettings, PrivacySettings, SecureSettings, AttackSettings)

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        return [LEARNERS.find("dqn")]

    @classmethod
    def uses_anchors(cls, values: Values) -> bool:
        return True

    def learner(self, client: int) -> tuple[type[Learner], dict[str, Any]]:
        return LEARNERS.find("dqn"), {"temperature": self.config.temperature}

    def federation(self, terms: Terms, public: Public) -> Federation:
        assert public.anchors is not None, "anchors that move are refused by check"
        c = self.config
        return Distilled(public.anchors, public.actions, self.rule.combine, temperature=c.temperature)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        super().check(c, need)
        need(c.anchor_source not in MOVING, "anchor_source",
             "distilled-feddqn needs fixed anchors: choose rollout, uniform, mix or file")  # fmt: skip
