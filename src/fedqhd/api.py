"""The whole of it as functions; the command line is thin over these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.envs import make_env
from fedqhd.experiment import run as experiment
from fedqhd.experiment.config import Config, resolve
from fedqhd.interfaces import Array
from fedqhd.policy import greedy_returns, load_policy
from fedqhd.report.figures import curves


def train(
    config: Config | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    listener: experiment.Listener | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train with the given settings (names as in `Config`); returns the summary.

    What is not given comes from the environment's own defaults. Results are in the summary's "out".
    """
    config = config or resolve(settings)
    summary = experiment.train(config, overwrite=overwrite, resume=resume, listener=listener)
    curves(config.folder)
    return {**summary, "out": str(config.folder)}


def evaluate(run: str | Path, episodes: int = 100, seed: int = 1) -> Array:
    """Greedy returns of every client of a finished run, (N, episodes), on fresh episodes."""
    rows = []
    for client in range(len(list((Path(run) / "models").glob("client-*.npz"))) or 1):
        policy = load_policy(run, client)
        env = make_env(policy.env, repeat=policy.action_repeat)
        rows.append(greedy_returns(policy, env, episodes, seed, client))
        env.close()
    return np.array(rows)
