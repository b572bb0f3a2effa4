"""`fedqhd.measure_gap` and `fedqhd.advise`. They are apart from `train`, which need not wait for their imports."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from fedqhd.agents.policy import load_policy
from fedqhd.api.options import Options
from fedqhd.core.config import Config
from fedqhd.core.trust import grant
from fedqhd.gap import advise as advising
from fedqhd.gap import measure as measuring
from fedqhd.gap.reference import has_reference, reference, settings_for
from fedqhd.report.gap import write
from fedqhd.runs import exchange
from fedqhd.runs.config import resolve


def measure_gap(
    run: str | PathLike[str],
    reference_run: str | PathLike[str] = "",
    *,
    states: int | None = None,
    episodes: int = 20,
    seed: int = 0,
    trust: bool = False,
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
        trust: Whether to import code that the runs name, even if this user did not make them on this machine.

    Returns:
        The report, with the same content as gap.json.
    """
    folder = Path(run)
    places: list[str | PathLike[str]] = [run, reference_run] if reference_run else [run]
    for place in places if trust else []:
        grant(place)
    c = measuring.run_config(folder)
    exchange.load(folder)  # refuses a run without a gap before the reference is computed, which may take minutes
    q_star = load_policy(Path(reference_run)) if reference_run else None
    if q_star is None and has_reference(c.env, c.action_repeat):
        q_star = reference(c.env, settings_for(c.env, c.gamma))[0]
    report = measuring.measure_gap(folder, q_star, states=states, episodes=episodes, seed=seed)
    write(report, folder)
    return report


def advise(
    config: Config | None = None, *, run: str | PathLike[str] = "", trust: bool = False, **settings: Unpack[Options]
) -> dict[str, Any]:
    """Say whether the anchors and the ridge parameter suit some settings, and which ones would suit them better.

    Args:
        config: The complete settings to judge. If None, they are resolved from `settings`.
        run: The folder of a finished run whose teacher is used. If empty, a short pilot run provides the teacher.
        trust: Whether to import code that `run` names, even if this user did not make it on this machine.
        settings: Individual settings by name, as for `train`.

    Returns:
        The advice, with the errors that it is based on.
    """
    if trust and run:
        grant(run)
    return advising.advise(config or resolve({**settings}), advising.teacher_of_run(Path(run)) if run else None)
