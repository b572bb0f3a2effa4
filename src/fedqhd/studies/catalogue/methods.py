"""A first comparison of all methods on CartPole, with one seed and half of the paper's episodes."""

from __future__ import annotations

from typing import Any

from fedqhd.studies.cells import CellStudy

SHORT = {"env": "CartPole-v1", "episodes": 300, "epsilon_decay": 0.98}
DIFFERENT = {**SHORT, "setting": "heterogeneous"}
ENCODERS = {"dims": [250, 500, 750, 1000, 1500]}
WIDTHS = {"widths": [64, 128, 256]}


def different(method: str, **others: Any) -> dict[str, Any]:
    """Return the settings of a method whose clients have different encoders or networks."""
    return {**DIFFERENT, "method": method, **others}


class Methods(CellStudy):
    """Each method with one encoder or network for all clients, and with different ones."""

    name = "methods"
    rank = 10
    about = "all methods on CartPole, one seed: a first look"
    hours = 0.9
    title = "All methods on CartPole"
    text = (
        "five clients, 300 episodes, settings from `configs/`. † oracles pool the data of all clients in one learner, "
        "which makes as many updates as the five clients together."
    )
    seeds = (0,)
    cells = {  # noqa: RUF012
        "independent-qhd, one encoder": {**SHORT, "method": "independent-qhd"},
        "truncated-fedavg-qhd, one encoder": {**SHORT, "method": "truncated-fedavg-qhd"},
        "fedavg-dqn, one network": {**SHORT, "method": "fedavg-dqn"},
        "distilled-feddqn, one network": {**SHORT, "method": "distilled-feddqn"},
        "fedqhd, one encoder": {**SHORT, "method": "fedqhd"},
        "oracle-qhd†, one encoder": {**SHORT, "method": "oracle-qhd"},
        "oracle-dqn†, one network": {**SHORT, "method": "oracle-dqn"},
        "independent-qhd, different encoders": different("independent-qhd", **ENCODERS),
        "truncated-fedavg-qhd, different encoders": different("truncated-fedavg-qhd", **ENCODERS),
        "distilled-feddqn, different networks": different("distilled-feddqn", **WIDTHS),
        "fedqhd, different encoders": different("fedqhd", **ENCODERS),
        "fedqhd, QHD and DQN clients": different(
            "fedqhd", **ENCODERS, agents=["qhd", "qhd", "qhd", "dqn:64", "dqn:128x128"]
        ),
        "oracle-qhd†, largest encoder": different("oracle-qhd", **ENCODERS),
        "oracle-dqn†, largest network": different("oracle-dqn", **WIDTHS),
    }
