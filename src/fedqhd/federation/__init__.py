"""What clients and server exchange."""

from fedqhd.federation.aggregate import weighted_mean
from fedqhd.federation.baselines import Distilled, Independent, Truncated
from fedqhd.federation.closed_form import NormalExchange, PrecisionCompile
from fedqhd.federation.fedqhd import AnchorCompile, ParameterAverage, TeacherAnchors, VisitedAnchors, choose
from fedqhd.federation.rounds import plan_rounds, run_rounds

__all__ = [
    "AnchorCompile",
    "Distilled",
    "Independent",
    "NormalExchange",
    "ParameterAverage",
    "PrecisionCompile",
    "TeacherAnchors",
    "Truncated",
    "VisitedAnchors",
    "choose",
    "plan_rounds",
    "run_rounds",
    "weighted_mean",
]
