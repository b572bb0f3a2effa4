"""Train, record, evaluate: what `fedqhd train` does."""

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
from fedqhd.runs.outcome import Outcome, evaluate, happened, summarise
from fedqhd.runs.private import spent


class Listener:
    """Who wants to know how a run goes; this one does nothing with it."""

    def start(self, config: Config, rounds: int, rounds_done: int) -> None: ...
    def episode(self, episode: Episode) -> None: ...
    def round(self, k: int, replies: Sequence[Reply]) -> None: ...
    def evaluating(self) -> None: ...


def train(
    config: Config, *, overwrite: bool = False, resume: bool = False, listener: Listener | None = None
) -> dict[str, Any]:
    """Run to the end and return the summary; everything is in `config.folder`."""
    listener = listener or Listener()
    folder = config.folder
    summary_file = folder / "summary.json"
    claim(config, overwrite, resume)
    if resume and summary_file.exists():
        clear_checkpoints(folder)
        return dict(json.loads(summary_file.read_text()))
    # Bits of a matrix product depend on the number of BLAS threads; one is as fast at these sizes.
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
    """All of a run once its clients are there. `outcomes` says what came of them, where they were evaluated at home."""
    folder, (engine, server) = config.folder, parties
    try:
        if not resume:
            clear(folder)
        write_bytes(folder / "config.toml", config.to_toml().encode())
        totals = run(config, parties, world.federation, listener)
        listener.evaluating()
        came = outcomes(engine) if outcomes else engine.each(partial(evaluate, config, world.scaler))
        reports = totals["rounds"] + server.counts["repeated"]
        summary = {**summarise(config, came, world, totals), **happened(config, server), **spent(config, reports)}
        write_bytes(folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    except WriteFailed as error:
        raise FedQHDError(f"{error}, then go on with: {how_to_go_on(config)}") from error
    clear_checkpoints(folder)
    return summary


def make_engine(c: Config, clients: Sequence[LocalClient], world: World, server: Server, listener: Listener) -> Engine:
    """By default one worker process a core, where there are several of both cores and clients."""
    if c.engine == "flower" or c.get("secure", "off") != "off":
        engine: Engine = simulation(c, clients, world, server, listener)
    elif c.engine == "process" or (c.engine == "auto" and min(cores(), len(clients)) > 1):
        engine = ProcessEngine(clients, world.federation, listener.episode)
    else:
        engine = LocalEngine(clients, world.federation, listener.episode)
    lying = liars(c)
    return Attacked(engine, c.attack, lying, c.seed) if lying else engine


def simulation(c: Config, clients: Sequence[LocalClient], world: World, server: Server, listener: Listener) -> Engine:
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise FedQHDError("engine='flower' needs Flower: install it with pip install 'fedqhd[flower]'")
    from fedqhd.runs.simulated import start

    return start(c, clients, world, on_episode=listener.episode, absent=server.absent)


def how_to_go_on(config: Config) -> str:
    return f"fedqhd train --resume --out {config.folder}"


def where_it_stands(config: Config) -> str:
    """What a run that was stopped leaves behind."""
    kept = checkpoints(config.folder)
    if not (config.folder / "config.toml").exists():
        return " before it began: nothing was written"
    after = f"after round {number_of(kept[0])}" if kept else "in its first round"
    return f" {after}, nothing before that is lost; go on with: {how_to_go_on(config)}"


def identity(config: Config) -> str:
    """Which run this is: all settings but the folder and the engine, which does not matter to what comes out."""
    return f"{zlib.crc32(config.replace(out='', engine='auto').to_toml().encode()):08x}"


def claim(config: Config, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that holds another run, unless it is to be resumed or overwritten."""
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
    """Make room for a new run; called when it is sure to start, so that a mistake costs nothing.

    Whatever moment this is cut off at, what is left is the old run or a part of it, under its own settings.
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
    for path in [*checkpoints(folder), *folder.glob("**/*.part")]:
        path.unlink()
    shutil.rmtree(checkpoint.nodes(folder), ignore_errors=True)


def run(config: Config, parties: Parties, federation: Federation, listener: Listener) -> dict[str, Any]:
    """All rounds, a checkpoint after each. Returns the totals: steps, bytes and seconds."""
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
            exchange.save(folder, engine, federation, server.counted, latest)
        rounds_file.note(folder, k, (ended - wall, spent_cpu), server, replies, latest)
        checkpoint.save(folder, Checkpoint(k + 1, latest, kept, totals), parties, which, config.keep)
        listener.round(k, replies)
        wall, cpu = perf_counter(), engine.cpu_seconds()
        spend({"logging": wall - ended})
    spend({"wall": perf_counter() - wall, "cpu": engine.cpu_seconds() - cpu})
    return totals


def nbytes(payload: Payload, uplink: str = "full") -> int:
    """Of the arrays in it, as they travel: what was refused may hold anything, or be none."""
    arrays = [v for v in payload.values() if isinstance(v, np.ndarray)] if isinstance(payload, Mapping) else []
    return sum(sent_bytes(v, uplink) for v in arrays)


def rows(k: int, replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """One line of metrics.jsonl per client and episode."""
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
    """Lines at the end of a file of `size` bytes and checksum `crc`; both as they are then. A checkpoint that counts
    on these lines comes after them to the disk."""
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
    """Drop the lines of rounds that are to be run again, whole or half."""
    data = metrics.read_bytes()[:size] if metrics.exists() else b""
    if len(data) != size or zlib.crc32(data) != crc:
        raise damaged(metrics, "it lacks lines of finished rounds")
    write_bytes(metrics, data)
