"""Twenty clients of which half take part in a round, with and without stragglers, late joiners and leavers."""

from __future__ import annotations

from cells import run_cells

TWENTY = (
    "--env CartPole-v1 --setting heterogeneous --learner least-squares --dims 100 150 200 250 300 --anchors 300 "
    "--clients 20 --episodes 300 --participation 0.5"
)
COMING_AND_GOING = "16=20: 17=20: 18=20: 19=20: 12=0:39 13=0:39 14=0:39 15=0:39"
CELLS = {
    "half of twenty": TWENTY,
    "half of twenty, a fifth late, four join, four leave": f"{TWENTY} --late 0.2 --late-weight 0 "
    f"--present {COMING_AND_GOING}",
}

run_cells(
    "participation",
    "Partial participation on CartPole",
    "Made by `make participation`: twenty clients with different encoders, 60 rounds of 5 episodes, half of those "
    "present in each, so that a client plays about 150 episodes. CartPole counts as solved at 475. Who joins late, "
    "leaves or is late plays about 100: its last 100 episodes are all of them, the first ones too; greedy is what it "
    "knows in the end.",
    {name: arguments.split() for name, arguments in CELLS.items()},
    (0, 1, 2),
    {"half of twenty": 475},
)
