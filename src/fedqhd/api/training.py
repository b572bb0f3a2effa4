"""`fedqhd.train`. The command line is a thin layer over the functions of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from fedqhd.api.options import Number, Others, Own, Text, Whole
from fedqhd.api.run import Run
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.presets import PLAIN
from fedqhd.core.trust import grant
from fedqhd.report.figures import curves
from fedqhd.runs import folder as run_folder
from fedqhd.runs import run as experiment
from fedqhd.runs.callback import Callback
from fedqhd.runs.config import resolve
from fedqhd.runs.settings import NEUTRAL

Setting = Literal["homogeneous", "heterogeneous"]
Preset = Literal["tuned", "paper", "plain"]
Engine = Literal["auto", "local", "process", "flower"]


def train(
    config: Config | None = None,
    *,
    env: Own | None = None,
    method: Own | None = None,
    setting: Setting | None = None,
    learner: Own | None = None,
    encoder: Own | Sequence[Own] | None = None,
    dims: Whole | Sequence[Whole] | None = None,
    agents: str | Sequence[str] | None = None,
    clients: Whole | None = None,
    episodes: Whole | None = None,
    round_episodes: Whole | None = None,
    eval_episodes: Whole | None = None,
    anchors: Whole | None = None,
    gamma: Number | None = None,
    seed: Whole | None = None,
    engine: Engine | None = None,
    out: Text | None = None,
    callbacks: Callback | str | Sequence[Callback | str] = (),
    preset: Preset = "tuned",
    overwrite: bool = False,
    resume: bool = False,
    extend: int | None = None,
    trust: bool = False,
    **settings: Unpack[Others],
) -> Run:
    """Train a federation.

    Settings that are None come from the preset. All settings are described in `fedqhd train --help`; the most common
    ones are in this signature.

    Args:
        config: Complete settings, as returned by `fedqhd.resolve`, instead of those of a preset. Settings given besides
            them override them.
        env: A Gymnasium id, `module:Env`, or an environment, class or function of your own.
        method: The method, such as "fedqhd" or "fedavg-dqn", or a class of your own.
        setting: "homogeneous" (one encoder for all clients) or "heterogeneous" (one for each).
        learner: The learner, such as "least-squares", "replay" or "online", or a class of your own.
        encoder: The encoder or encoders, which clients take in turn.
        dims: The dimension or dimensions D of the encoders, which clients take in turn.
        agents: The kinds of agents of a mixed federation, such as ["qhd", "dqn:64"].
        clients: The number of clients.
        episodes: The number of training episodes of each client.
        round_episodes: The number of episodes of each client in a round.
        eval_episodes: The number of greedy episodes of each client after training.
        anchors: The number of shared anchor states.
        gamma: The discount factor.
        seed: The seed of all random numbers.
        engine: Where clients run. The results do not depend on it.
        out: The folder for the results; by default a folder in runs/.
        callbacks: They follow the run and may stop it: objects, or names as in `--callbacks`.
        preset: The source of all settings that are not given: "tuned" (the settings of the main table), "paper" (those
            that the paper states) or "plain" (the environment's own file alone).
        overwrite: Whether to replace an existing run in `out`.
        resume: Whether to continue the interrupted run in `out`.
        extend: Go on with the finished run in `out` for this many more episodes per client, or steps if it goes by
            steps. The bits are those of a run that was longer from the start.
        trust: With `resume` or `extend`: whether to import code that the run in `out` names, even if this user did not
            make it on this machine.
        settings: All other settings, by name.

    Returns:
        The finished run. It can be read like the dictionary in summary.json.

    Raises:
        FedQHDError: If a setting is invalid, or if `out` holds a run and neither `overwrite` nor `resume` is set.
    """
    named = {
        "env": env, "method": method, "setting": setting, "learner": learner, "encoder": encoder, "dims": dims,
        "agents": agents, "clients": clients, "episodes": episodes, "round_episodes": round_episodes,
        "eval_episodes": eval_episodes, "anchors": anchors, "gamma": gamma, "seed": seed, "engine": engine, "out": out,
    }  # fmt: skip
    given: dict[str, Any] = {**{name: value for name, value in named.items() if value is not None}, **settings}
    hooks = [callbacks] if isinstance(callbacks, str | Callback) else list(callbacks)
    texts = [hook for hook in hooks if isinstance(hook, str)]
    if texts:
        given["callbacks"] = texts
    place = given.get("out") or (config and config.folder)
    if trust and place:
        grant(place)
    if extend is not None:
        config = extended(given, config, extend)
        resume = True
    elif config is None:
        config = resolve(given, preset=preset)
    elif given:
        config = resolve(given, preset=PLAIN, shared=config.values)
    objects = [hook for hook in hooks if not isinstance(hook, str)]
    experiment.train(config, overwrite=overwrite, resume=resume, callbacks=objects)
    curves(config.folder)
    return Run(config.folder)


def extended(given: Mapping[str, Any], config: Config | None, extend: int) -> Config:
    """Prepare the run in `out` for more episodes and return its settings.

    Raises:
        FedQHDError: If there is no finished run to extend, or settings are given that would change it.
    """
    out = given.get("out") or (config and str(config.folder))
    if not out:
        raise FedQHDError(f"extend={extend} needs out=, the folder of a finished run")
    others = sorted(given.keys() - set(NEUTRAL))
    if others:
        raise FedQHDError(f"{others[0]}={given[others[0]]!r} cannot change when a run is extended: leave it out")
    longer = run_folder.extend(Path(out), extend)
    return resolve({k: v for k, v in given.items() if k != "out"}, preset=PLAIN, shared=longer.values)
