"""A world that a client of a real federation can name in its file: it plays slowly, tells when, and can go wrong.

FEDQHD_TEST_EPISODES names a file that gets a line an episode; FEDQHD_TEST_FAULTS is what goes wrong in which report,
counted over processes in a file of that name's own.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from fedqhd.federation import AnchorCompile

PACE = "0.25"
"""Seconds an episode takes, unless FEDQHD_TEST_PACE says otherwise."""


def count(path: str) -> int:
    """How often this was called with this path, over all processes."""
    with open(path, "a") as f:
        f.write("x\n")
    return len(Path(path).read_text().splitlines())


class Slow(CartPoleEnv):
    def reset(self, **options):
        time.sleep(float(os.environ.get("FEDQHD_TEST_PACE", PACE)))
        if path := os.environ.get("FEDQHD_TEST_EPISODES"):
            count(path)
        return super().reset(**options)


gymnasium.register("Slow-v0", Slow, max_episode_steps=30)
honest = AnchorCompile.report


def report(self, client, teacher):
    faults = os.environ.get("FEDQHD_TEST_FAULTS", "").split()
    sent = honest(self, client, teacher)
    n = count(os.environ["FEDQHD_TEST_EPISODES"] + ".reports") if faults else 0
    fault = faults[n - 1] if 0 < n <= len(faults) else ""
    if fault == "raise":
        raise ZeroDivisionError("the robot fell over")
    if fault == "nan":
        return {"Q": np.full_like(sent["Q"], np.nan)}
    if fault == "shape":
        return {"Q": sent["Q"][:7]}
    if fault == "hang":
        time.sleep(3600)
    return sent


AnchorCompile.report = report
