"""All methods side by side on CartPole, in half the paper's episodes: one seed, a first look."""

from __future__ import annotations

from cells import run_cells

SHORT = "--env CartPole-v1 --episodes 300 --epsilon-decay 0.98"
DIFFERENT = f"{SHORT} --setting heterogeneous"
ENCODERS = "--dims 250 500 750 1000 1500"
WIDTHS = "--widths 64 128 256"
CELLS = {
    "independent-qhd, one encoder": f"{SHORT} --method independent-qhd",
    "truncated-fedavg-qhd, one encoder": f"{SHORT} --method truncated-fedavg-qhd",
    "fedavg-dqn, one network": f"{SHORT} --method fedavg-dqn",
    "distilled-feddqn, one network": f"{SHORT} --method distilled-feddqn",
    "fedqhd, one encoder": f"{SHORT} --method fedqhd",
    "oracle-qhd†, one encoder": f"{SHORT} --method oracle-qhd",
    "oracle-dqn†, one network": f"{SHORT} --method oracle-dqn",
    "independent-qhd, different encoders": f"{DIFFERENT} --method independent-qhd {ENCODERS}",
    "truncated-fedavg-qhd, different encoders": f"{DIFFERENT} --method truncated-fedavg-qhd {ENCODERS}",
    "distilled-feddqn, different networks": f"{DIFFERENT} --method distilled-feddqn {WIDTHS}",
    "fedqhd, different encoders": f"{DIFFERENT} --method fedqhd {ENCODERS}",
    "fedqhd, QHD and DQN clients": f"{DIFFERENT} --method fedqhd {ENCODERS} --agents qhd qhd qhd dqn:64 dqn:128x128",
    "oracle-qhd†, largest encoder": f"{DIFFERENT} --method oracle-qhd {ENCODERS}",
    "oracle-dqn†, largest network": f"{DIFFERENT} --method oracle-dqn {WIDTHS}",
}

run_cells(
    "methods",
    "All methods on CartPole",
    "Made by `make methods`: five clients, 300 episodes, settings from `configs/`. † oracles pool the data "
    "of all clients in one learner, which makes as many updates as the five clients together.",
    {name: arguments.split() for name, arguments in CELLS.items()},
    (0,),
    {},
)
