"""The whole of it as functions; the command line is thin over these."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from fedqhd.agents.policy import greedy_returns, load_policy
from fedqhd.core.config import Config
from fedqhd.core.presets import PRESETS
from fedqhd.core.protocols import Array
from fedqhd.gap import advise as advising
from fedqhd.gap.measure import measure_gap, run_config
from fedqhd.gap.reference import has_reference, reference, settings_for
from fedqhd.report.figures import curves
from fedqhd.report.gap import write
from fedqhd.runs import run as experiment
from fedqhd.runs.config import FIELDS, resolve


def train(
    config: Config | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    listener: experiment.Listener | None = None,
    preset: str = PRESETS[0],
    **settings: Any,
) -> dict[str, Any]:
    """Train a federation.

    Args:
        config: All settings, as `fedqhd.resolve` makes them; or give single ones by name.
        overwrite: Whether to replace the run that `out` holds.
        resume: Whether to go on with the run that `out` holds.
        listener: Who is told how the run goes.
        preset: Where settings come from that are not given: "tuned", those of the main table, or "paper".
        settings: Settings by name, as `fedqhd train --help` lists them.

    Returns:
        The summary of the run, with the folder of its results under "out".
    """
    config = config or resolve(settings, preset=preset)
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
    return advising.advise(config or resolve(settings), advising.teacher_of_run(run) if run else None)


def _with_settings(function: Any) -> inspect.Signature:
    """A function's signature with every setting in place of `**settings`, for help() and editors."""
    own = inspect.signature(function)
    kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
        for name, f in FIELDS.items()
        if name not in own.parameters
    ]
    return own.replace(parameters=[*kept, *settings])


_public: tuple[Any, ...] = (train, advise)
for _function in _public:
    _function.__signature__ = _with_settings(_function)
