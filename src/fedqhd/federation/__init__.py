"""What clients and server exchange, and how the server combines it."""

from fedqhd.core.length import plan_rounds
from fedqhd.federation.aggregate import RULES, Rule, rule_of, weighted_mean
from fedqhd.federation.closed_form import NormalExchange, PrecisionCompile
from fedqhd.federation.fedqhd import AnchorCompile, ParameterAverage, ThroughAnchors, choose
from fedqhd.federation.moving_anchors import TeacherAnchors, VisitedAnchors
from fedqhd.federation.rounds import Round, run_rounds
from fedqhd.federation.server import Server
from fedqhd.federation.terms import Terms
from fedqhd.federation.validate import Participant
from fedqhd.federation.wrappers.adaptive import ADAPTIVE
from fedqhd.federation.wrappers.attacked import ATTACKS, Attacked
from fedqhd.federation.wrappers.attacks import FIXED
from fedqhd.federation.wrappers.base import unwrapped
from fedqhd.federation.wrappers.privacy import Privacy, Private
from fedqhd.federation.wrappers.server_step import Stepped
from fedqhd.federation.wrappers.uplink import Rounded

__all__ = [
    "ADAPTIVE",
    "ATTACKS",
    "FIXED",
    "RULES",
    "AnchorCompile",
    "Attacked",
    "NormalExchange",
    "ParameterAverage",
    "Participant",
    "PrecisionCompile",
    "Privacy",
    "Private",
    "Round",
    "Rounded",
    "Rule",
    "Server",
    "Stepped",
    "TeacherAnchors",
    "Terms",
    "ThroughAnchors",
    "VisitedAnchors",
    "choose",
    "plan_rounds",
    "rule_of",
    "run_rounds",
    "unwrapped",
    "weighted_mean",
]
