"""The federation gap over the number of anchors m, for fewer and more anchors than the dimension D."""

from __future__ import annotations

from fedqhd.studies.ablation_study import Ablation, Pairs

ANCHORS = [(512, m) for m in (51, 128, 256, 384, 512, 640, 768, 1024, 2048)]
UNTRAINED = (384, 640, 768)
"""The numbers of anchors that are measured without training only."""


class AblationAnchors(Ablation):
    """The ablation over m, with anchors from random rollouts and with uniform ones, whose features have full rank."""

    name = "ablation-anchors"
    rank = 6
    about = "the federation gap as the number of anchors passes D = 512, without training and with it"
    hours = 1.5
    over = "m"
    variants = ({}, {"anchor_source": "uniform", "lam": 1e-6})

    @property
    def computed(self) -> Pairs:
        return ANCHORS

    @property
    def trained(self) -> Pairs:
        return [(D, m) for D, m in ANCHORS if m not in UNTRAINED]
