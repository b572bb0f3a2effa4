"""Trains, records and evaluates one run, as `fedqhd train` does."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd.agents.client import SPLIT, LocalClient
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import WriteFailed, checkpoints, damaged, number_of, write_bytes, write_failed
from fedqhd.core.protocols import Engine, Episode, Federation, Payload, Reply
from fedqhd.engines import LocalEngine, ProcessEngine, cores
from fedqhd.federation import Attacked, Server, plan_rounds, run_rounds
from fedqhd.federation.wrappers.uplink import sent_bytes
from fedqhd.runs import checkpoint, exchange
from fedqhd.runs import rounds_log as rounds_file
from fedqhd.runs.build import World, build, liars, make_server, warm_up
from fedqhd.runs.checkpoint import Checkpoint, Parties
from fedqhd.runs.config import load_config
from fedqhd.runs.outcome import Outcome, evaluate, summarise, summarise_replies
from fedqhd.runs.private import privacy_spent


class Listener:
    """Follows the progress of a run. This base class ignores all events; override those of interest."""

    def start(self, config: Config, rounds: int, rounds_done: int) -> None:
        """Training starts, or resumes after `rounds_done` of `rounds` rounds."""

    def episode(self, episode: Episode) -> None:
        """A client has played a training episode."""

    def round(self, k: int, replies: Sequence[Reply]) -> None:
        """Round k is complete and its checkpoint is written."""

    def evaluating(self) -> None:
        """Training is complete, and the evaluation starts."""


def train(
    config: Config, *, overwrite: bool = False, resume: bool = False, listener: Listener | None = None
) -> dict[str, Any]:
    """Train a run to its end, write all results to `config.folder`, and return the summary.

    Raises:
        FedQHDError: If the folder holds a run and neither `overwrite` nor `resume` is given, or if the run fails.
    """
    listener = listener or Listener()
    folder = config.folder
    summary_file = folder / "summary.json"
    claim(config, overwrite, resume)
    if resume and summary_file.exists():
        clear_checkpoints(folder)
        return dict(json.loads(summary_file.read_text()))
    # The bits of a matrix product depend on the number of BLAS threads, and one thread is as fast at these sizes.
    with threadpool_limits(1):
        clients, world = build(config)
        warm_up(config)
        server = make_server(config, world.members)
        engine = make_engine(config, clients, world, server, listener)
        try:
            return conduct(config, Parties(engine, server), world, listener, resume)
        finally:
            engine.close()


def conduct(
    config: Config,
    parties: Parties,
    world: World,
    listener: Listener,
    resume: bool,
    outcomes: Callable[[Engine], list[Outcome]] | None = None,
) -> dict[str, Any]:
    """Train and evaluate a run whose clients are ready, and return the summary.

    `outcomes` returns the evaluations of clients that evaluate themselves on other machines; None evaluates the clients
    through the engine.
    """
    folder, (engine, server) = config.folder, parties
    try:
        if not resume:
            clear(folder)
        write_bytes(folder / "config.toml", config.to_toml().encode())
        totals = run(config, parties, world.federation, listener)
        listener.evaluating()
        evaluated = outcomes(engine) if outcomes else engine.each(partial(evaluate, config, world.scaler))
        reports = totals["rounds"] + server.counts["repeated"]
        summary = {
            **summarise(config, evaluated, world, totals),
            **summarise_replies(config, server),
            **privacy_spent(config, reports),
        }
        write_bytes(folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    except WriteFailed as error:
        raise FedQHDError(f"{error}, then resume with: {resume_command(config)}") from error
    clear_checkpoints(folder)
    return summary


def make_engine(c: Config, clients: Sequence[LocalClient], world: World, server: Server, listener: Listener) -> Engine:
    """Make the engine of a run. With engine=auto, several clients on several cores get one worker process per core."""
    if c.engine == "flower" or c.get("secure", "off") != "off":
        engine: Engine = simulation(c, clients, world, server, listener)
    elif c.engine == "process" or (c.engine == "auto" and min(cores(), len(clients)) > 1):
        engine = ProcessEngine(clients, world.federation, listener.episode)
    else:
        engine = LocalEngine(clients, world.federation, listener.episode)
    lying = liars(c)
    return Attacked(engine, c.attack, lying, c.seed) if lying else engine


def simulation(c: Config, clients: Sequence[LocalClient], world: World, server: Server, listener: Listener) -> Engine:
    """Start Flower's simulation; raise FedQHDError if Flower or Ray is not installed."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise FedQHDError("engine='flower' needs Flower: install it with pip install 'fedqhd[flower]'")
    from fedqhd.runs.simulated import start

    return start(c, clients, world, on_episode=listener.episode, on_absent=server.record_absence)


def resume_command(config: Config) -> str:
    """Return the command that resumes a run."""
    return f"fedqhd train --resume --out {config.folder}"


def describe_interruption(config: Config) -> str:
    """Describe, for the end of an error message, what a run that was stopped leaves behind."""
    found = checkpoints(config.folder)
    if not (config.folder / "config.toml").exists():
        return " before it began: nothing was written"
    when = f"after round {number_of(found[0])}" if found else "in its first round"
    return f" {when}, nothing before that is lost; resume with: {resume_command(config)}"


def identity(config: Config) -> str:
    """Return a hash of all settings except the folder and the engine, which do not affect the results."""
    return f"{zlib.crc32(config.replace(out='', engine='auto').to_toml().encode()):08x}"


def claim(config: Config, overwrite: bool, resume: bool) -> None:
    """Raise FedQHDError if the folder holds a run, unless it is to be replaced or is the run to resume."""
    folder = config.folder
    held = folder / "config.toml"
    if resume and overwrite:
        raise FedQHDError("resume and overwrite exclude each other: choose one")
    if resume and held.exists():
        before = load_config(held).values
        for name, new in config.values.items():
            old = before.get(name, new)
            if old != new and name not in ("out", "engine"):
                raise FedQHDError(f"{name}={new!r} differs from the run to resume, which has {old!r}: leave it out")
        return
    if folder.exists() and not folder.is_dir():
        raise FedQHDError(f"out={str(folder)!r} is a file: give a folder")
    if held.exists() and not overwrite:
        raise FedQHDError(f"out={str(folder)!r} already holds a run: give another folder, --resume or --overwrite")


def clear(folder: Path) -> None:
    """Delete the run that a folder holds.

    It is called only when the new run is sure to start, so that a mistake in the settings costs nothing. If it is
    interrupted, the folder holds the old run or a part of it, with the old settings.
    """
    clear_checkpoints(folder)
    for model in (*(folder / "models").glob("client-*.npz"), exchange.path_of(folder)):
        model.unlink(missing_ok=True)
    for name in (
        "summary.json",
        "metrics.jsonl",
        rounds_file.NAME,
        "curves.png",
        "play.gif",
        "gap.json",
        "gap.png",
        "config.toml",
    ):
        (folder / name).unlink(missing_ok=True)


def clear_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run and files that were not completely written."""
    for path in [*checkpoints(folder), *folder.glob("**/*.part")]:
        path.unlink()
    shutil.rmtree(checkpoint.nodes_folder(folder), ignore_errors=True)


def run(config: Config, parties: Parties, federation: Federation, listener: Listener) -> dict[str, Any]:
    """Play all rounds, with a checkpoint after each, from the last checkpoint on if there is one.

    Returns:
        The totals: rounds, steps, bytes and seconds.
    """
    folder, (engine, server) = config.folder, parties
    rounds = plan_rounds(config.episodes, config.round_episodes)
    fresh: dict[str, Any] = {"rounds": 0, "steps": 0, "bytes_up": 0, "bytes_down": 0, "seconds": {}, "metrics": (0, 0)}
    which = identity(config)
    done = checkpoint.load(folder, parties, which)
    start, teacher, state, totals = done or (0, None, None, fresh)
    metrics = folder / "metrics.jsonl"
    cut_back(metrics, *totals["metrics"])
    rounds_file.cut_back(folder, start)
    listener.start(config, len(rounds), start)

    def spend(seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            totals["seconds"][name] = totals["seconds"].get(name, 0.0) + value

    wall, cpu = perf_counter(), engine.cpu_seconds()
    for k, replies, latest, kept in run_rounds(engine, federation, rounds, start, teacher, server, state):
        ended, spent_cpu = perf_counter(), engine.cpu_seconds() - cpu
        spend({"wall": ended - wall, "cpu": spent_cpu, "federation": server.seconds})
        server.seconds = 0.0
        for reply in replies:
            spend({name: reply.seconds[name] for name in SPLIT})
        totals["rounds"] += 1
        totals["steps"] += sum(r.steps for r in replies)
        totals["bytes_up"] += sum(nbytes(r.payload, config.get("uplink", "full")) for r in replies)
        totals["bytes_down"] += nbytes(latest) * len(replies)
        totals["metrics"] = append(metrics, rows(k, replies), *totals["metrics"])
        if k + 1 == len(rounds):
            exchange.save(folder, engine, federation, server.used_weights, latest)
        rounds_file.append_round(folder, k, (ended - wall, spent_cpu), server, replies, latest)
        checkpoint.save(folder, Checkpoint(k + 1, latest, kept, totals), parties, which, config.keep)
        listener.round(k, replies)
        wall, cpu = perf_counter(), engine.cpu_seconds()
        spend({"logging": wall - ended})
    spend({"wall": perf_counter() - wall, "cpu": engine.cpu_seconds() - cpu})
    return totals


def nbytes(payload: Payload, uplink: str = "full") -> int:
    """Return the bytes of the arrays in a payload as they are sent.

    A refused reply may hold anything, so whatever is not an array is ignored.
    """
    arrays = [v for v in payload.values() if isinstance(v, np.ndarray)] if isinstance(payload, Mapping) else []
    return sum(sent_bytes(v, uplink) for v in arrays)


def rows(k: int, replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl for round k, one per client and episode."""
    return [
        {
            "round": k,
            "client": e.client,
            "episode": e.episode,
            "return": e.ret,
            "length": e.length,
            "epsilon": e.epsilon,
        }
        for r in replies
        for e in r.episodes
    ]


def append(metrics: Path, new: list[dict[str, Any]], size: int, crc: int) -> tuple[int, int]:
    """Append lines to metrics.jsonl and return its new size in bytes and CRC-32, of which `size` and `crc` are the old.

    The lines are on disk when this returns, before a checkpoint that relies on them is written.
    """
    data = "".join(json.dumps(row) + "\n" for row in new).encode()
    try:
        with metrics.open("ab") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    except OSError as error:
        raise write_failed(metrics, error) from error
    return size + len(data), zlib.crc32(data, crc)


def cut_back(metrics: Path, size: int, crc: int) -> None:
    """Cut metrics.jsonl back to `size` bytes with the CRC-32 `crc`, which drops lines of rounds to be played again.

    Raises:
        FedQHDError: If lines of finished rounds are missing or damaged.
    """
    data = metrics.read_bytes()[:size] if metrics.exists() else b""
    if len(data) != size or zlib.crc32(data) != crc:
        raise damaged(metrics, "it lacks lines of finished rounds")
    write_bytes(metrics, data)
