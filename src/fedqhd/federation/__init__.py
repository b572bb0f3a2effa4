"""What clients and server exchange."""

from fedqhd.federation.aggregate import COMBINE, SELECT, own_rule, weighted_mean
from fedqhd.federation.closed_form import NormalExchange, PrecisionCompile
from fedqhd.federation.fedqhd import AnchorCompile, ParameterAverage, TeacherAnchors, VisitedAnchors, choose
from fedqhd.federation.rounds import plan_rounds, run_rounds
from fedqhd.federation.server import Server
from fedqhd.federation.terms import Terms
from fedqhd.federation.validate import Member
from fedqhd.federation.wrappers.attacks import ATTACKS, Attacked

__all__ = [
    "ATTACKS",
    "COMBINE",
    "SELECT",
    "AnchorCompile",
    "Attacked",
    "Member",
    "NormalExchange",
    "ParameterAverage",
    "PrecisionCompile",
    "Server",
    "TeacherAnchors",
    "Terms",
    "VisitedAnchors",
    "choose",
    "own_rule",
    "plan_rounds",
    "run_rounds",
    "weighted_mean",
]
