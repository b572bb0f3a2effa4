"""The public Python functions. The command line is a thin layer over them."""

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
        config: The complete settings, as returned by `fedqhd.resolve`. If None, they are resolved from `preset` and
            `settings`.
        overwrite: Whether to replace an existing run in the folder `out`.
        resume: Whether to continue the run in the folder `out`.
        listener: An object whose methods are called as the run progresses.
        preset: The source of all settings that are not given: "tuned" (the settings of the main table), "paper" (those
            that the paper states) or "plain" (the environment's own file alone).
        settings: Individual settings by name, as listed by `fedqhd train --help`.

    Returns:
        The summary of the run, as in summary.json, and the folder of its results under "out".

    Raises:
        FedQHDError: If a setting is invalid, or if `out` holds a run and neither `overwrite` nor `resume` is set.
    """
    config = config or resolve(settings, preset=preset)
    summary = experiment.train(config, overwrite=overwrite, resume=resume, listener=listener)
    curves(config.folder)
    return {**summary, "out": str(config.folder)}


def evaluate(run: str | Path, episodes: int = 100, seed: int = 1) -> Array:
    """Play fresh episodes with the greedy policy of every client of a finished run.

    Args:
        run: The folder of the run.
        episodes: How many episodes each client plays.
        seed: The seed of these episodes.

    Returns:
        The returns, an array of shape (clients, episodes).
    """
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
    """Measure what the last exchange of a finished run cost each client, and break it down into its causes.

    The report is also written to gap.json and gap.png in the folder of the run.

    Args:
        run: The folder of the run.
        reference_run: The folder of a finished run whose Q-function is taken for Q*. If empty, the built-in reference
            of the environment is used, if there is one.
        states: How many states the functions are projected on. If None, it is chosen by the number of features.
        episodes: How many greedy episodes measure the value of each policy.
        seed: The seed of the sampled states and of these episodes.

    Returns:
        The report, with the same content as gap.json.
    """
    c = run_config(run)
    q_star = load_policy(reference_run) if reference_run else None
    if q_star is None and has_reference(c.env, c.action_repeat):
        q_star = reference(c.env, settings_for(c.env, c.gamma))[0]
    report = measure_gap(run, q_star, states=states, episodes=episodes, seed=seed)
    write(report, run)
    return report


def advise(config: Config | None = None, *, run: str | Path = "", **settings: Any) -> dict[str, Any]:
    """Say whether the anchors and the ridge parameter suit some settings, and which ones would suit them better.

    Args:
        config: The complete settings to judge. If None, they are resolved from `settings`.
        run: The folder of a finished run whose teacher is used. If empty, a short pilot run provides the teacher.
        settings: Individual settings by name, as for `train`.

    Returns:
        The advice, with the errors that it is based on.
    """
    return advising.advise(config or resolve(settings), advising.teacher_of_run(run) if run else None)


def _with_settings(function: Any) -> inspect.Signature:
    """Return a function's signature with `**settings` spelt out, for help() and editors."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
        for name, f in FIELDS.items()
        if name not in signature.parameters
    ]
    return signature.replace(parameters=[*named, *settings])


_public: tuple[Any, ...] = (train, advise)
for _function in _public:
    _function.__signature__ = _with_settings(_function)
