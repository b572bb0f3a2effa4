"""The anchor states that all clients share, from random rollouts, the box of states or a file."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.npy import MAGIC, read_npy, read_npz, read_regular
from fedqhd.core.protocols import Array
from fedqhd.core.settings import Need, Settings, setting
from fedqhd.envs.adapt import Env
from fedqhd.envs.rollouts import ROLLOUT_STEPS, random_states
from fedqhd.envs.scaling import StateScaler

MOVING = ("teacher", "visited")
"""Sources whose anchors change during training."""
UNPACKED = 64 << 20
"""The most bytes to which a compressed file of anchors may expand: a million states of eight variables."""


@dataclass(frozen=True)
class AnchorSettings(Settings):
    """The anchor states at which Q-values are exchanged."""

    title: ClassVar[str] = "anchors"

    anchors: int = setting(200, "number of anchor states, m")
    anchor_source: str = setting(
        "rollout", "where anchors come from", choices=("rollout", "uniform", "mix", "file", *MOVING)
    )
    anchor_file: str = setting(
        "", "anchor_source=file: an .npy or .npz file of raw states, one per row", only={"anchor_source": "file"}
    )

    @classmethod
    def check(cls, c: Config, need: Need) -> None:
        need(c.anchor_source != "file" or bool(c.anchor_file), "anchor_source", "give the file in anchor_file")


def make_anchors(
    source: str,
    m: int,
    file: str,
    env: Env,
    scaler: StateScaler,
    rng: np.random.Generator,
    steps: int = ROLLOUT_STEPS,
) -> Array:
    """Return the anchors of the first round as scaled states (m, n).

    Args:
        source: "rollout" or "teacher" for states of random rollouts, "uniform" for uniform draws from the box of the
            scaler, "mix" for half of each, or "file".
        m: Number of anchors; a file decides it itself.
        file: The file of raw states.
        env: The environment for the rollouts.
        scaler: The scaling of states.
        rng: The generator of all draws.
        steps: Steps of the rollouts from which anchors are drawn, at least 2m.
    """
    if source == "file":
        return scaler(read_states(file, len(scaler.shift)))
    rollouts = {"rollout": m, "teacher": m, "uniform": 0, "mix": m - m // 2}[source]
    met = random_states(env, max(steps, 2 * m), rng)
    chosen = met[rng.choice(len(met), rollouts, replace=False)]
    uniform = rng.uniform(scaler.low, scaler.high, (m - rollouts, len(scaler.low)))
    return scaler(np.vstack([chosen, uniform]))


def read_states(file: str, n: int) -> Array:
    """Read raw states (m, n) from an .npy file, or from the first array of an .npz file."""
    if not Path(file).is_file():
        raise FedQHDError(f"anchor_file={file!r} does not exist: give an .npy or .npz file of states")
    try:
        data = read_regular(file)
        zipped = data.startswith(MAGIC)
        states = next(iter(read_npz(data, UNPACKED).values())) if zipped else read_npy(io.BytesIO(data), len(data))
        if np.iscomplexobj(states):
            raise ValueError("it holds complex numbers")
        states = states.astype(np.float64)
    except Exception as error:
        raise FedQHDError(f"anchor_file={file!r} cannot be read as an .npy or .npz file of numbers: {error}") from error
    if states.ndim != 2 or states.shape[1] != n or not len(states):
        raise FedQHDError(f"anchor_file={file!r} holds an array of shape {states.shape}: (m, {n}) is needed")
    if not np.isfinite(states).all():
        row = int(np.argwhere(~np.isfinite(states))[0][0])
        raise FedQHDError(f"anchor_file={file!r} has a value that is not finite in row {row}: give finite states")
    return states
