"""FedQHD: clients with one encoder average their readouts, clients with different ones compile a teacher at anchors.

Clients may also have different learners (the setting `agents`). Values at anchors do not depend on the model behind
them, so readouts and networks can take part in one federation.
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
from fedqhd.federation.fedqhd import AnchorCompile, averages, choose
from fedqhd.federation.follow import teacher_rollout
from fedqhd.federation.method import LearnerSettings, Method, Style, Values
from fedqhd.federation.moving_anchors import TeacherAnchors, VisitedAnchors
from fedqhd.federation.terms import Terms


@dataclass(frozen=True)
class FedQHDSettings(LearnerSettings):
    """The settings of `method=fedqhd` itself."""

    title: ClassVar[str] = "mixed federations"

    agents: tuple[str, ...] = setting(
        (), "agents of the clients, cycled, e.g. qhd dqn:64 dqn:128x128 module:Class (default: qhd for all)"
    )


def kind_of(spec: str, learner: str) -> tuple[type[Learner], dict[str, Any]]:
    """Parse an entry of `agents`: `qhd` (the run's `learner`), `dqn:64`, `dqn:128x128` or `module:Class`.

    Returns:
        The learner class and the options for its `make`.

    Raises:
        FedQHDError: If the entry is none of these.
    """
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
        """Tell whether clients exchange values at anchors: with different encoders, precision weights or networks."""
        networks = any(not learner.encodes and not learner.continuous for learner in cls.learners(values))
        return bool(values["setting"] == "heterogeneous" or values.get("weights") == "precision" or networks)

    def learner(self, client: int) -> tuple[type[Learner], dict[str, Any]]:
        kinds = self.config.agents or ("qhd",)
        return kind_of(kinds[client % len(kinds)], self.config.learner)

    def federation(self, terms: Terms, public: Public) -> Federation:
        c, combine, actions = self.config, self.rule.combine, public.actions
        if c.get("exchange") == "statistics":
            return NormalExchange(c.fit_lam, c.damping, terms.like)
        if public.bounds is not None and not averages(terms):
            raise FedQHDError(
                f"learner={c.learner} is not possible: clients with continuous actions average an array W, so params() "
                "must return it alone and fingerprint() must be the same for all"
            )
        if public.anchors is None:
            visited = VisitedAnchors(c.get("anchors", 0), c.clients, public.n, actions, combine)
            return choose(terms, visited, combine)
        precise = c.weights == "precision"
        compiled = (PrecisionCompile if precise else AnchorCompile)(public.anchors, actions, combine)
        through_anchors: Federation = compiled
        if c.anchor_source == "teacher":
            through_anchors = TeacherAnchors(compiled, teacher_rollout(c, public))
        # Precision weights go through anchors even with one encoder, because W carries no uncertainty.
        return through_anchors if precise else choose(terms, through_anchors, combine)

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(not c.agents or c.setting == "heterogeneous", "agents",
             "different agents have no parameters in common, so they can exchange only values at anchors: give "
             f"setting=heterogeneous, not {c.setting}")  # fmt: skip
        certain = all(hasattr(learner, "uncertainty") for learner in cls.learners(c.values))
        need(c.weights != "precision" or certain, "weights",
             "it needs a learner that knows its uncertainty, such as least-squares")  # fmt: skip
        need(c.weights != "precision" or c.anchor_source != "visited", "anchor_source",
             "weights=precision needs anchors that do not come from clients: choose rollout, uniform, mix, file or "
             "teacher")  # fmt: skip
        need(c.get("exchange", "model") == "model" or c.setting == "homogeneous", "exchange",
             "normal equations can be added up only if clients have one encoder: give setting=homogeneous")  # fmt: skip
        need(not (c.late and c.late_weight and c.get("anchor_source") == "teacher"), "late_weight",
             "with anchor_source=teacher the anchors have moved on when a late reply arrives: give 0")  # fmt: skip
        for name, value, fits in (
            ("exchange", "statistics", ("auto", "mean")),
            ("weights", "precision", ("auto", "mean", "multi-krum")),
        ):
            need(c.get(name) != value or c.aggregate in fits, "aggregate",
                 f"with {name}={value} the server adds replies up: choose {' or '.join(fits)}")  # fmt: skip

    @classmethod
    def tuning_variant(cls, c: Config) -> dict[str, Any]:
        """With different encoders, try a larger bandwidth, because some clients draw a narrow encoder."""
        return {"sigma": 1.25 * c.sigma} if c.setting == "heterogeneous" else super().tuning_variant(c)
