"""The results of a run: the evaluation of its clients and its summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedqhd._version import __version__
from fedqhd.agents.client import LocalClient
from fedqhd.agents.loops import SPLIT
from fedqhd.agents.policy import Policy, greedy_returns, model_path
from fedqhd.core.config import Config
from fedqhd.core.engine import Trial
from fedqhd.core.files import damaged
from fedqhd.core.lines import parsed
from fedqhd.core.protocols import Array
from fedqhd.core.schema import Real
from fedqhd.envs.scaling import StateScaler
from fedqhd.federation import Server, unwrapped
from fedqhd.federation.method import method_of
from fedqhd.federation.settings import AggregationSettings
from fedqhd.runs.build import World, liars
from fedqhd.runs.commit import commit
from fedqhd.runs.limits import all_feature_bytes, stored_as
from fedqhd.runs.metrics import NAME as METRICS

LAST = 100
"""The number of last episodes over which the final return is averaged."""
SPARSE, FEW = 1000, 1_000_000
"""A table of returns has at most SPARSE entries for each episode that was played, beyond the first FEW: a file of a few
lines must not ask for all of the memory."""


def training_returns(folder: Path, clients: int, episodes: int) -> Array:
    """Read the return of every training episode, (N, episodes), with NaN for episodes that were not played.

    There are more columns than `episodes` if rounds had to be repeated.

    Args:
        folder: The folder of the run.
        clients: The number of clients, N.
        episodes: The number of episodes per client, which may be 0 in a run by steps.
    """
    try:
        rows = parsed((folder / METRICS).read_bytes())
        who, when, values = ([row[name] for row in rows] for name in ("client", "episode", "return"))
        columns = max([episodes, *(1 + episode for episode in when)])
        if clients * columns > SPARSE * len(rows) + FEW:
            raise ValueError(f"{len(rows)} episodes are too few for {clients} clients of {columns} episodes each")
        if episodes and not rows:
            raise ValueError("there are none")
        if {*map(type, who), *map(type, when)} - {int} or min([*who, *when], default=0) < 0:
            raise ValueError("clients and episodes must be numbered from 0")
        if not all(map(Real().accepts, values)):
            raise ValueError("returns must be finite numbers")
        returns = np.full((clients, columns), np.nan)
        returns[who, when] = values
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise damaged(folder / METRICS, f"its lines are not episodes of this run: {error}") from error
    return returns


def smooth(y: Array, width: int) -> Array:
    """Return the moving average over the last `width` values, or over fewer at the start; same shape as y, (n,)."""
    total = np.cumsum(np.insert(y, 0, 0.0))
    low = np.maximum(np.arange(1, len(y) + 1) - width, 0)
    return (total[1:] - total[low]) / (np.arange(1, len(y) + 1) - low)


def final_returns(returns: Array) -> Array:
    """Return each client's mean over the LAST episodes that it played, (N,), with NaN for one that played none."""
    last = [row[~np.isnan(row)][-LAST:] for row in returns]
    return np.array([row.mean() if len(row) else np.nan for row in last])


def mean_of(values: Array) -> float:
    """Return the mean of all values that are not NaN, or NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(np.nanmean(values)) if len(known) else math.nan


def episodes_to_goal(returns: Array, goal: float) -> int | None:
    """Return how many episodes it takes until the mean over the LAST episodes of all clients reaches a goal.

    Args:
        returns: The returns of all clients, (N, episodes).
        goal: The mean return to reach.

    Returns:
        The number of episodes per client, or None if the goal is never reached.
    """
    total = np.cumsum(np.append(0.0, returns.mean(axis=0)))
    above = np.flatnonzero(total[LAST:] - total[:-LAST] >= LAST * goal)
    return LAST + int(above[0]) if len(above) else None


def summarise_replies(c: Config, server: Server) -> dict[str, Any]:
    """Return the part of the summary about aggregation: replies that did not count as usual, and repeated rounds.

    Replies are counted by client and, where there is one, reason. A rule that plays replies also says what that took.
    """
    replies: dict[str, dict[str, int]] = {"refused": {}, "absent": {}, "left out": {}, "late": {}}
    for key, count in sorted(server.counts.items()):
        kind, _, who = key.partition("/")
        if kind in replies:
            replies[kind][who] = count
    names = {"episodes": "played episodes", "steps": "played steps", "teachers_taken_back": "taken back"}
    played = {"played": {name: server.counts[key] for name, key in names.items()}} if server.rule.plays else {}
    lying = {"attack": c.attack, "liars": liars(c)} if c.get("attack", "none") != "none" else {}
    return {
        "aggregate": c.get("aggregate", AggregationSettings.aggregate),
        "replies": replies,
        "rounds_repeated": server.counts["repeated"],
        **played,
        **lying,
    }


class Outcome(NamedTuple):
    """The evaluation of a trained client."""

    greedy: list[float]
    """The mean greedy return in each of its environments."""
    nominal: list[float]
    """The same in the nominal environment; empty if the environments do not differ."""
    updates: int
    """How often it learned."""
    alarms: int | None
    """How many fits it undid; None for a learner that does not undo fits."""


BEST = "best"
"""The folder in a run's folder that holds the best models, where a callback keeps them."""


def policy_of(c: Config, scaler: StateScaler, client: LocalClient) -> Policy:
    """Return the present policy of a client."""
    return Policy(client.agent.model(), scaler, c.env, client.agent.epsilon, c.action_repeat)


def measure(c: Config, scaler: StateScaler, client: LocalClient, trial: Trial) -> Array:
    """Play the episodes of a trial, and save the model as the best one if the trial says so."""
    policy = policy_of(c, scaler, client)
    if trial.keep:
        policy.save(model_path(c.folder / BEST, client.index))
    sites = enumerate(client.envs, start=client.index)
    played = partial(greedy_returns, policy, purpose="trial", compiled=c.get("loop") != "python")
    return np.array([played(env, trial.episodes, trial.seed, i) for i, env in sites])


def evaluate(c: Config, scaler: StateScaler, client: LocalClient) -> Outcome:
    """Save a client's model and evaluate its greedy policy. The file may not be on the disk yet; see `make_durable`."""
    policy = policy_of(c, scaler, client)
    policy.save(model_path(c.folder, client.index), durable=False)
    played = partial(greedy_returns, policy, compiled=c.get("loop") != "python")
    greedy, nominal = [], []
    for site, env in enumerate(client.envs, start=client.index):
        greedy.append(played(env, c.eval_episodes, c.seed, site).mean())
        if c.dynamics:
            nominal.append(played(policy.make_env(), c.eval_episodes, c.seed, site).mean())
    alarms = getattr(client.agent, "alarms", None)  # only learners that undo fits have it
    return Outcome(greedy, nominal, client.agent.updates, alarms)


def summarise(c: Config, outcomes: Sequence[Outcome], world: World, totals: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a run.

    If a client on another machine was gone at the end, its greedy return is None, and the mean is that of the others.

    Args:
        c: The settings of the run.
        outcomes: The evaluations of the agents.
        world: What the run consists of.
        totals: Steps, bytes and seconds, as `fedqhd.runs.run.run` returns them.
    """
    greedy, nominal = [x for o in outcomes for x in o.greedy], [x for o in outcomes for x in o.nominal]
    final = final_returns(training_returns(c.folder, c.clients, totals["episodes"]))
    seconds = totals["seconds"]
    alarms = [o.alarms for o in outcomes if o.alarms is not None]
    return {
        "env": c.env,
        "method": c.method,
        "setting": c.setting,
        "learner": method_of(c).learner_name,
        "protocol": type(unwrapped(world.federation)).__name__,
        "seed": c.seed,
        "clients": c.clients,
        "episodes": totals["episodes"],
        **({} if totals["steps_per_client"] is None else {"steps": totals["steps_per_client"]}),
        "final_return": mean_of(final),
        "greedy_return": float(np.nanmean(greedy)),
        "final_return_per_client": [float(x) for x in final],
        "greedy_return_per_client": [None if math.isnan(x) else float(x) for x in greedy],
        "env_steps": totals["steps"],
        "wall_seconds": seconds["wall"],
        "cpu_seconds": seconds["cpu"],
        "split_seconds": {name: seconds[name] for name in (*SPLIT, "logging")},
        "bytes_up_per_round": totals["bytes_up"] / totals["rounds"],
        "bytes_down_per_round": totals["bytes_down"] / totals["rounds"],
        **({"loop": world.loop} if world.loop else {}),
        "features": stored_as(c),
        "feature_bytes": all_feature_bytes(c),
        "agents": len(outcomes),
        "updates": sum(o.updates for o in outcomes),
        **({"fit_alarms": sum(alarms)} if alarms else {}),
        **({"dynamics": world.dynamics, "greedy_return_nominal": float(np.mean(nominal))} if c.dynamics else {}),
        **({"stopped": totals["stopped"]} if totals["stopped"] else {}),
        "version": __version__,
        "commit": commit(),
    }
