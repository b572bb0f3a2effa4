"""What clients and server exchange."""

from fedqhd.federation.aggregate import weighted_mean
from fedqhd.federation.baselines import Distilled, Independent, Truncated
from fedqhd.federation.fedqhd import AnchorCompile, ParameterAverage, VisitedAnchors, choose
from fedqhd.federation.rounds import plan_rounds, run_rounds

__all__ = [
    "AnchorCompile",
    "Distilled",
    "Independent",
    "ParameterAverage",
    "Truncated",
    "VisitedAnchors",
    "choose",
    "plan_rounds",
    "run_rounds",
    "weighted_mean",
]
