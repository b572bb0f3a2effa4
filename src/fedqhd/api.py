"""The whole of it as functions; the command line is thin over these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.agents.policy import greedy_returns, load_policy
from fedqhd.core.protocols import Array
from fedqhd.gap import advise as advising
from fedqhd.gap.measure import measure_gap, run_config
from fedqhd.gap.reference import has_reference, reference, settings_for
from fedqhd.report.figures import curves
from fedqhd.report.gap import write
from fedqhd.runs import run as experiment
from fedqhd.runs.config import Config, resolve


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
        env = policy.make_env()
        rows.append(greedy_returns(policy, env, episodes, seed, client))
        env.close()
    return np.array(rows)


def gap(
    run: str | Path, reference_run: str | Path = "", *, states: int | None = None, episodes: int = 20, seed: int = 0
) -> dict[str, Any]:
    """What the last exchange of a finished run cost each client, and why; also in the run's gap.json and gap.png.

    Q* is that of the run `reference_run`, or our own where the environment has one.
    """
    c = run_config(run)
    q_star = load_policy(reference_run) if reference_run else None
    if q_star is None and has_reference(c.env, c.action_repeat):
        q_star = reference(c.env, settings_for(c.env, c.gamma))[0]
    report = measure_gap(run, q_star, states=states, episodes=episodes, seed=seed)
    write(report, run)
    return report


def advise(config: Config | None = None, *, run: str | Path = "", **settings: Any) -> dict[str, Any]:
    """Whether anchors and ridge suit a setting, and what would: by the teacher of a finished run, or of a pilot."""
    return advising.advise(config or resolve(settings), advising.of_run(run) if run else None)
