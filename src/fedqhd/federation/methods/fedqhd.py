"""FedQHD: clients with one encoder average their readouts, clients with different ones compile a teacher at anchors.

Clients may also be of different kinds (`agents`): values at anchors say nothing of the model behind them, so readouts
and networks can sit in one federation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedqhd.agents.learner import LEARNERS, Learner
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.named import is_custom_name
from fedqhd.core.protocols import Federation
from fedqhd.core.settings import Need, setting
from fedqhd.envs.public import Public
from fedqhd.federation.closed_form import NormalExchange, PrecisionCompile
from fedqhd.federation.fedqhd import AnchorCompile, choose
from fedqhd.federation.follow import teacher_rollout
from fedqhd.federation.method import LearnerSettings, Method, Style, Values
from fedqhd.federation.moving_anchors import TeacherAnchors, VisitedAnchors
from fedqhd.federation.terms import Terms


@dataclass(frozen=True)
class FedQHDSettings(LearnerSettings):
    """The settings of `method=fedqhd` itself."""

    agents: tuple[str, ...] = setting(
        (), "kinds of the clients, cycled, e.g. qhd dqn:64 dqn:128x128 module:Class (all qhd)"
    )


def kind_of(spec: str, learner: str) -> tuple[type[Learner], dict[str, Any]]:
    """The learner of `qhd` (that of the run), `dqn:64`, `dqn:128x128` or `module:Class`, and options for making it."""
    name, _, rest = spec.partition(":")
    if spec == "qhd":
        return LEARNERS.find(learner), {}
    if name == "dqn" and rest and all(w.isdecimal() and int(w) >= 1 for w in rest.split("x")):
        return LEARNERS.find("dqn"), {"hidden": tuple(int(w) for w in rest.split("x"))}
    if is_custom_name(spec):
        return LEARNERS.find(spec), {}
    hint = nearest(name, ("qhd", "dqn"))
    raise FedQHDError(f"agents={spec!r} is unknown{hint}: give qhd, dqn:64, dqn:128x128 or module:Class")


class FedQHD(Method):
    """Algorithm 1 for clients with one encoder, Algorithm 2 for clients with different ones."""

    name: ClassVar[str] = "fedqhd"
    Settings = FedQHDSettings
    style: ClassVar[Style] = Style("#d55e00", (), 2.4, rank=5)
    seeds: ClassVar[int] = 10

    @classmethod
    def learners(cls, values: Values) -> list[type[Learner]]:
        kinds = values.get("agents") or ("qhd",)
        return list(dict.fromkeys(kind_of(spec, values["learner"])[0] for spec in kinds))

    @classmethod
    def uses_anchors(cls, values: Values) -> bool:
        """Where encoders differ, where W does not say how certain it is, and where there are no readouts to average."""
        readouts = all(learner.encodes for learner in cls.learners(values))
        return bool(values["setting"] == "heterogeneous" or values.get("weights") == "precision" or not readouts)

    def learner(self, client: int) -> tuple[type[Learner], dict[str, Any]]:
        kinds = self.config.agents or ("qhd",)
        return kind_of(kinds[client % len(kinds)], self.config.learner)

    def federation(self, terms: Terms, public: Public) -> Federation:
        c, combine, actions = self.config, self.rule.combine, public.actions
        if c.get("exchange") == "statistics":
            return NormalExchange(c.fit_lam, c.damping, terms.like)
        if public.anchors is None:
            visited = VisitedAnchors(c.get("anchors", 0), c.clients, public.n, actions, combine)
            return choose(terms, visited, combine)
        precise = c.weights == "precision"
        compiled = (PrecisionCompile if precise else AnchorCompile)(public.anchors, actions, combine)
        through_anchors: Federation = compiled
        if c.anchor_source == "teacher":
            through_anchors = TeacherAnchors(compiled, teacher_rollout(c, public))
        # W alone does not say how certain it is.
        return through_anchors if precise else choose(terms, through_anchors, combine)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(not c.agents or c.setting == "heterogeneous", "agents",
             "kinds of agents have no parameters in common to average, only values on anchors: give "
             f"setting=heterogeneous, not {c.setting}")  # fmt: skip
        certain = all(hasattr(learner, "uncertainty") for learner in cls.learners(c.values))
        need(c.weights != "precision" or certain, "weights",
             "only a learner such as least-squares knows how certain it is")  # fmt: skip
        need(c.weights != "precision" or c.anchor_source != "visited", "anchor_source",
             "precision weights take anchors that no client gave: rollout, uniform, mix, file or teacher")  # fmt: skip
        need(c.get("exchange", "model") == "model" or c.setting == "homogeneous", "exchange",
             "normal equations add up where all clients have one encoder: give setting=homogeneous")  # fmt: skip
        need(not (c.late and c.late_weight and c.get("anchor_source") == "teacher"), "late_weight",
             "with anchor_source=teacher the anchors have moved on when a late reply comes: give 0")  # fmt: skip
        for name, value, fits in (
            ("exchange", "statistics", ("auto", "mean")),
            ("weights", "precision", ("auto", "mean", "multi-krum")),
        ):
            need(c.get(name) != value or c.aggregate in fits, "aggregate",
                 f"with {name}={value} replies are added up: choose {' or '.join(fits)}")  # fmt: skip

    @classmethod
    def other_exchange(cls, c: Config) -> dict[str, Any]:
        """A client that may have drawn a narrow encoder looks a little further."""
        return {"sigma": 1.25 * c.sigma} if c.setting == "heterogeneous" else super().other_exchange(c)
