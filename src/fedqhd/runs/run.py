"""Trains, records and evaluates one run, as `fedqhd train` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from fedqhd.agents.client import LocalClient
from fedqhd.agents.loops import SPLIT
from fedqhd.agents.policy import models_of
from fedqhd.core import alive, trust
from fedqhd.core.blas import single_threaded
from fedqhd.core.config import Config
from fedqhd.core.engine import Engine
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import WriteFailed, make_durable, write_bytes
from fedqhd.core.protocols import Episode, Federation, Payload
from fedqhd.engines import LocalEngine, ProcessEngine, cores
from fedqhd.federation import Attacked, Server, run_rounds
from fedqhd.federation.wrappers.uplink import sent_bytes
from fedqhd.runs import callback, checkpoint, exchange, metrics, rounds_log
from fedqhd.runs.build import World, build, liars, make_server, warm_up
from fedqhd.runs.callback import Callback, Training
from fedqhd.runs.checkpoint import Checkpoint, Parties
from fedqhd.runs.config import code_names
from fedqhd.runs.folder import claim, clear, identity, keep_last_checkpoint, resume_command
from fedqhd.runs.outcome import Outcome, evaluate, measure, summarise, summarise_replies
from fedqhd.runs.private import privacy_spent
from fedqhd.runs.summary import read_summary

OnEpisode = Callable[[Episode], None]


def train(
    config: Config, *, overwrite: bool = False, resume: bool = False, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Train a run to its end, write all results to `config.folder`, and return the summary.

    Args:
        config: The settings of the run.
        overwrite: Whether to replace an existing run in the folder.
        resume: Whether to continue the run in the folder.
        callbacks: Callbacks besides those that the settings name.

    Raises:
        FedQHDError: If the folder holds a run and neither `overwrite` nor `resume` is given, or if the run fails.
    """
    summary_file = config.folder / "summary.json"
    claim(config, overwrite, resume)
    if resume and summary_file.exists():
        with alive.training(config.folder):  # it may have been killed after its end, before it had tidied up
            keep_last_checkpoint(config)
        return read_summary(config.folder)
    training = Training(config, callbacks)
    with single_threaded():
        clients, world = build(config)
        warm_up(config, clients)
        server = make_server(config, world.members, world.public)
        engine = make_engine(config, clients, world, server, training.tell_episode)
        try:
            return conduct(training, Parties(engine, server), world, resume)
        finally:
            engine.close()


def conduct(
    training: Training,
    parties: Parties,
    world: World,
    resume: bool,
    outcomes: Callable[[Engine], list[Outcome]] | None = None,
) -> dict[str, Any]:
    """Train and evaluate a run whose clients are ready, and return the summary.

    Args:
        training: The settings and callbacks of the run.
        parties: The engine, which knows the clients, and the server.
        world: What the run consists of.
        resume: Whether to continue from the last checkpoint.
        outcomes: Returns the evaluations of clients that evaluate themselves on other machines; None evaluates the
            clients through the engine.
    """
    config, (engine, server) = training.config, parties
    training.engine = engine
    try:
        with alive.training(training.folder):
            if not resume:
                clear(training.folder)
            trust.remember(training.folder, code_names(config.values))  # first: who sees the settings may read them
            write_bytes(training.folder / "config.toml", config.to_toml().encode())
            totals = run(training, parties, world.federation)
            training.tell("on_training_end")
            if outcomes:
                evaluated = outcomes(engine)
            else:
                evaluated = engine.each(partial(evaluate, config, world.scaler))
                make_durable(models_of(training.folder))
            reports = totals["rounds"] + server.counts["repeated"]
            summary = {
                **summarise(config, evaluated, world, totals),
                **summarise_replies(config, server),
                **privacy_spent(config, reports),
            }
            write_bytes(training.folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
            keep_last_checkpoint(config)
            training.tell("on_end", summary)
    except WriteFailed as error:
        raise FedQHDError(f"{error}, then resume with: {resume_command(config)}") from error
    return summary


def make_engine(
    c: Config, clients: Sequence[LocalClient], world: World, server: Server, on_episode: OnEpisode
) -> Engine:
    """Make the engine of a run. With engine=auto, several clients on several cores get one worker process per core."""
    measuring = partial(measure, c, world.scaler)
    if c.engine == "flower" or c.get("secure", "off") != "off":
        engine: Engine = simulation(c, clients, world, server, on_episode)
    elif c.engine == "process" or (c.engine == "auto" and min(cores(), len(clients)) > 1):
        engine = ProcessEngine(clients, world.federation, on_episode, measure=measuring)
    else:
        engine = LocalEngine(clients, world.federation, on_episode, measuring)
    lying = liars(c)
    verdict = partial(server.verdict, world.federation)
    return Attacked(engine, c.attack, lying, c.seed, verdict) if lying else engine


def simulation(
    c: Config, clients: Sequence[LocalClient], world: World, server: Server, on_episode: OnEpisode
) -> Engine:
    """Start Flower's simulation; raise FedQHDError if Flower or Ray is not installed."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise FedQHDError("engine='flower' needs Flower: install it with pip install 'fedqhd[flower]'")
    from fedqhd.runs.simulated import start

    return start(c, clients, world, on_episode=on_episode, on_absent=server.record_absence)


def run(training: Training, parties: Parties, federation: Federation) -> dict[str, Any]:
    """Play all rounds, with a checkpoint after each, from the last checkpoint on if there is one.

    Returns:
        The totals: rounds, episodes and steps per client, steps, bytes and seconds, and why a callback stopped the run.
    """
    config, folder, (engine, server) = training.config, training.folder, parties
    rounds = training.plan
    fresh: dict[str, Any] = {"rounds": 0, "steps": 0, "bytes_up": 0, "bytes_down": 0, "seconds": {}, "metrics": (0, 0)}
    which = identity(config)
    done = checkpoint.load(folder, parties, which)
    start, training.teacher, state, totals = done or (0, None, None, fresh)
    training.rounds_done, training.ended = start, totals.get("ended", 0)
    training.stopped = callback.stopped_before(folder, start)
    metrics.cut_back(folder, *totals["metrics"])
    rounds_log.cut_back(folder, start)
    callback.cut_back(folder, start)
    training.tell("on_start")

    def spend(seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            totals["seconds"][name] = totals["seconds"].get(name, 0.0) + value

    wall, cpu = perf_counter(), engine.cpu_seconds()
    last = start if training.stopped else len(rounds)
    for k, replies, latest, kept in run_rounds(
        engine, federation, rounds[:last], start, training.teacher, server, state, lambda: bool(training.stopped)
    ):
        ended, spent_cpu = perf_counter(), engine.cpu_seconds() - cpu
        spend({"wall": ended - wall, "cpu": spent_cpu, "federation": server.seconds})
        server.seconds = 0.0
        for reply in replies:
            spend({name: reply.seconds[name] for name in SPLIT})
        totals["rounds"] += 1
        totals["steps"] += sum(r.steps for r in replies)
        totals["bytes_up"] += sum(nbytes(r.payload, config.get("uplink", "full")) for r in replies)
        totals["bytes_down"] += nbytes(latest) * len(replies)
        totals["metrics"] = metrics.append(folder, metrics.rows(k, replies), *totals["metrics"])
        rounds_log.append_round(folder, k, (ended - wall, spent_cpu), server, replies, latest, kept)
        training.rounds_done, training.teacher = k + 1, latest
        if training.steps_done is not None:
            numbers = [1 + e.episode for r in replies for e in r.episodes]
            training.ended = totals["ended"] = max([training.ended, *numbers])
        training.tell("on_round", replies)
        if training.stopped:
            callback.record_stop(folder, k + 1, training.stopped)
        if k + 1 == len(rounds) or training.stopped:
            exchange.save(folder, engine, federation, server.used_weights, latest)
        checkpoint.save(folder, Checkpoint(k + 1, latest, kept, totals), parties, which, config.keep)
        wall, cpu = perf_counter(), engine.cpu_seconds()
        spend({"logging": wall - ended})
    spend({"wall": perf_counter() - wall, "cpu": engine.cpu_seconds() - cpu})
    played = {"episodes": training.episodes_done, "steps_per_client": training.steps_done}
    return {**totals, **played, "stopped": training.stopped}


def nbytes(payload: Payload, uplink: str = "full") -> int:
    """Return the bytes of the arrays in a payload as they are sent.

    A refused reply may hold anything, so whatever is not an array is ignored.
    """
    arrays = [v for v in payload.values() if isinstance(v, np.ndarray)] if isinstance(payload, Mapping) else []
    return sum(sent_bytes(v, uplink) for v in arrays)
