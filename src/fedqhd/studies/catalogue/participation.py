"""Partial participation: half of twenty clients in each round, with and without stragglers, joiners and leavers."""

from __future__ import annotations

from fedqhd.studies.cells import CellStudy

TWENTY = {
    "env": "CartPole-v1", "setting": "heterogeneous", "learner": "least-squares", "dims": [100, 150, 200, 250, 300],
    "anchors": 300, "clients": 20, "episodes": 300, "participation": 0.5,
}  # fmt: skip
COMING_AND_GOING = [*(f"{i}=20:" for i in range(16, 20)), *(f"{i}=0:39" for i in range(12, 16))]


class Participation(CellStudy):
    """Partial participation, and clients that come and go."""

    name = "participation"
    rank = 16
    about = "twenty clients on CartPole of which half take part in a round; some are late, join or leave"
    hours = 0.1
    title = "Partial participation on CartPole"
    text = (
        "twenty clients with different encoders, 60 rounds of 5 episodes, half of those present in each, so that a "
        "client plays about 150 episodes. CartPole counts as solved at 475. Who joins late, leaves or is late plays "
        "about 100: its last 100 episodes are all of them, the first ones too; greedy is what it knows in the end."
    )
    cells = {  # noqa: RUF012
        "half of twenty": TWENTY,
        "half of twenty, a fifth late, four join, four leave": {
            **TWENTY, "late": 0.2, "late_weight": 0, "present": COMING_AND_GOING,
        },
    }  # fmt: skip
    promised = {"half of twenty": 475}  # noqa: RUF012
