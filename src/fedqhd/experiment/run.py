"""Train, record, evaluate: what `fedqhd train` does."""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd._version import __version__
from fedqhd.agents import LeastSquaresQHD
from fedqhd.client import SPLIT, LocalClient
from fedqhd.engines import LocalEngine, ProcessEngine, cores
from fedqhd.envs import StateScaler
from fedqhd.experiment import checkpoint, exchange
from fedqhd.experiment import rounds as rounds_file
from fedqhd.experiment.build import World, build, liars, make_server, warm_up
from fedqhd.experiment.checkpoint import Parties
from fedqhd.experiment.commit import commit
from fedqhd.experiment.config import DQN_METHODS, Config, known_keys, read_toml
from fedqhd.experiment.limits import all_feature_bytes, kept_as
from fedqhd.federation import Attacked, Server, plan_rounds, run_rounds
from fedqhd.files import WriteFailed, damaged, failed, write_bytes
from fedqhd.interfaces import Array, Engine, Episode, Federation, FedQHDError, Payload, Reply
from fedqhd.policy import Policy, greedy_returns, model_path

LAST = 100
"""The final return is the mean over this many last episodes."""


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
        server = make_server(config, clients)
        engine = make_engine(config, clients, world.federation, listener)
        try:
            if not resume:
                clear(folder)
            write_bytes(folder / "config.toml", config.to_toml().encode())
            totals = run(config, Parties(engine, server), world.federation, listener)
            listener.evaluating()
            outcomes = engine.each(partial(evaluate, config, world.scaler))
            summary = {**summarise(config, outcomes, world, totals), **happened(config, server)}
            write_bytes(summary_file, (json.dumps(summary, indent=2) + "\n").encode())
        except WriteFailed as error:
            raise FedQHDError(f"{error}, then go on with: {how_to_go_on(config)}") from error
        finally:
            engine.close()
    clear_checkpoints(folder)
    return summary


def make_engine(c: Config, clients: Sequence[LocalClient], federation: Federation, listener: Listener) -> Engine:
    """By default one worker process a core, where there are several of both cores and clients."""
    several = min(cores(), len(clients)) > 1
    kind = ProcessEngine if c.engine == "process" or (c.engine == "auto" and several) else LocalEngine
    engine = kind(clients, federation, listener.episode)
    lying = liars(c)
    return Attacked(engine, c.attack, lying, c.seed) if lying else engine


def how_to_go_on(config: Config) -> str:
    return f"fedqhd train --resume --out {config.folder}"


def where_it_stands(config: Config) -> str:
    """What a run that was stopped leaves behind."""
    kept = checkpoint.paths(config.folder)
    if not (config.folder / "config.toml").exists():
        return " before it began: nothing was written"
    after = f"after round {int(kept[0].stem.partition('-')[2])}" if kept else "in its first round"
    return f" {after}, nothing before that is lost; go on with: {how_to_go_on(config)}"


def identity(config: Config) -> str:
    """Which run this is: all settings but the folder and the engine, which does not matter to what comes out."""
    return f"{zlib.crc32(dataclasses.replace(config, out='', engine='auto').to_toml().encode()):08x}"


def claim(config: Config, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that holds another run, unless it is to be resumed or overwritten."""
    folder = config.folder
    held = folder / "config.toml"
    if resume and overwrite:
        raise FedQHDError("resume and overwrite exclude each other: choose one")
    if resume and held.exists():
        before = Config(**known_keys(str(held), read_toml(held)))
        for f in dataclasses.fields(Config):
            old, new = getattr(before, f.name), getattr(config, f.name)
            if old != new and f.name not in ("out", "engine"):
                raise FedQHDError(f"{f.name}={new!r} differs from the run to resume, which has {old!r}: leave it out")
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
    for path in [*checkpoint.paths(folder), *folder.glob("**/*.part")]:
        path.unlink()


def run(config: Config, parties: Parties, federation: Federation, listener: Listener) -> dict[str, Any]:
    """All rounds, a checkpoint after each. Returns the totals: steps, bytes and seconds."""
    folder, (engine, server) = config.folder, parties
    rounds = plan_rounds(config.episodes, config.round_episodes)
    fresh: dict[str, Any] = {"rounds": 0, "steps": 0, "bytes_up": 0, "bytes_down": 0, "seconds": {}, "metrics": (0, 0)}
    which = identity(config)
    done = checkpoint.load(folder, parties, which)
    start, teacher, totals = done or (0, None, fresh)
    metrics = folder / "metrics.jsonl"
    cut_back(metrics, *totals["metrics"])
    rounds_file.cut_back(folder, start)
    listener.start(config, len(rounds), start)

    def spend(seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            totals["seconds"][name] = totals["seconds"].get(name, 0.0) + value

    wall, cpu = perf_counter(), engine.cpu_seconds()
    for k, replies, latest in run_rounds(engine, federation, rounds, start, teacher, server):
        ended = perf_counter()
        spend({"wall": ended - wall, "cpu": engine.cpu_seconds() - cpu, "federation": server.seconds})
        server.seconds = 0.0
        for reply in replies:
            spend({name: reply.seconds[name] for name in SPLIT})
        totals["rounds"] += 1
        totals["steps"] += sum(r.steps for r in replies)
        totals["bytes_up"] += sum(nbytes(r.payload) for r in replies)
        totals["bytes_down"] += nbytes(latest) * len(replies)
        totals["metrics"] = append(metrics, rows(k, replies), *totals["metrics"])
        if k + 1 == len(rounds):
            exchange.save(folder, engine, federation, server.counted, latest)
        rounds_file.note(folder, k, ended - wall, server, replies, latest)
        checkpoint.save(folder, k + 1, latest, parties, totals, which, config.keep)
        listener.round(k, replies)
        wall, cpu = perf_counter(), engine.cpu_seconds()
        spend({"logging": wall - ended})
    spend({"wall": perf_counter() - wall, "cpu": engine.cpu_seconds() - cpu})
    return totals


def nbytes(payload: Payload) -> int:
    """Of the arrays in it: what was refused may hold anything, or be none."""
    return sum(v.nbytes for v in payload.values() if isinstance(v, np.ndarray)) if isinstance(payload, Mapping) else 0


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
        raise failed(metrics, error) from error
    return size + len(data), zlib.crc32(data, crc)


def cut_back(metrics: Path, size: int, crc: int) -> None:
    """Drop the lines of rounds that are to be run again, whole or half."""
    data = metrics.read_bytes()[:size] if metrics.exists() else b""
    if len(data) != size or zlib.crc32(data) != crc:
        raise damaged(metrics, "it lacks lines of finished rounds")
    write_bytes(metrics, data)


def training_returns(folder: Path, clients: int, episodes: int) -> Array:
    """The return of every training episode of every client, (N, episodes); NaN where none was recorded.

    More columns than `episodes` where rounds had to be repeated.
    """
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    returns = np.full((clients, max(episodes, *(1 + row["episode"] for row in rows))), np.nan)
    for row in rows:
        returns[row["client"], row["episode"]] = row["return"]
    return returns


def final_returns(returns: Array) -> Array:
    """Each client's mean over the LAST episodes that it played; NaN for one that played none."""
    last = [row[~np.isnan(row)][-LAST:] for row in returns]
    return np.array([row.mean() if len(row) else np.nan for row in last])


def happened(c: Config, server: Server) -> dict[str, Any]:
    """What became of replies that were not simply averaged, counted by client (and reason), and of rounds."""
    replies: dict[str, dict[str, int]] = {"refused": {}, "left out": {}, "late": {}}
    for key, count in sorted(server.counts.items()):
        kind, _, who = key.partition("/")
        if kind in replies:
            replies[kind][who] = count
    lying = {"attack": c.attack, "liars": liars(c)} if c.attack != "none" else {}
    return {"aggregate": c.aggregate, "replies": replies, "rounds_repeated": server.counts["repeated"], **lying}


class Outcome(NamedTuple):
    """What came of a client: greedy returns, at home and in the nominal environment, and how often it learned."""

    greedy: list[float]
    nominal: list[float]
    updates: int
    alarms: int | None


def evaluate(c: Config, scaler: StateScaler, client: LocalClient) -> Outcome:
    """Save a client's model and play it."""
    policy = Policy(client.agent.model(), scaler, c.env, client.agent.epsilon, c.action_repeat)
    policy.save(model_path(c.folder, client.index))
    greedy, nominal = [], []
    for site, env in enumerate(client.envs, start=client.index):
        greedy.append(greedy_returns(policy, env, c.eval_episodes, c.seed, site).mean())
        if c.dynamics:
            nominal.append(greedy_returns(policy, policy.make_env(), c.eval_episodes, c.seed, site).mean())
    alarms = client.agent.alarms if isinstance(client.agent, LeastSquaresQHD) else None
    return Outcome(greedy, nominal, client.agent.updates, alarms)


def summarise(c: Config, outcomes: Sequence[Outcome], world: World, totals: dict[str, Any]) -> dict[str, Any]:
    """What came out of a run."""
    greedy, nominal = [x for o in outcomes for x in o.greedy], [x for o in outcomes for x in o.nominal]
    final = final_returns(training_returns(c.folder, c.clients, c.episodes))
    seconds = totals["seconds"]
    alarms = [o.alarms for o in outcomes if o.alarms is not None]
    return {
        "env": c.env,
        "method": c.method,
        "setting": c.setting,
        "learner": "dqn" if c.method in DQN_METHODS else c.learner,
        "protocol": type(world.federation).__name__,
        "seed": c.seed,
        "clients": c.clients,
        "episodes": c.episodes,
        "final_return": float(np.nanmean(final)),
        "greedy_return": float(np.mean(greedy)),
        "final_return_per_client": [float(x) for x in final],
        "greedy_return_per_client": [float(x) for x in greedy],
        "env_steps": totals["steps"],
        "wall_seconds": seconds["wall"],
        "cpu_seconds": seconds["cpu"],
        "split_seconds": {name: seconds[name] for name in (*SPLIT, "logging")},
        "bytes_up_per_round": totals["bytes_up"] / totals["rounds"],
        "bytes_down_per_round": totals["bytes_down"] / totals["rounds"],
        "features": kept_as(c),
        "feature_bytes": all_feature_bytes(c),
        "agents": len(outcomes),
        "updates": sum(o.updates for o in outcomes),
        **({"fit_alarms": sum(alarms)} if alarms else {}),
        **({"dynamics": world.dynamics, "greedy_return_nominal": float(np.mean(nominal))} if c.dynamics else {}),
        "version": __version__,
        "commit": commit(),
    }
