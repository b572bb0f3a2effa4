"""Train, record, evaluate: what `fedqhd train` does."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedqhd._version import __version__
from fedqhd.agents import LeastSquaresQHD
from fedqhd.client import LocalClient
from fedqhd.engines import LocalEngine
from fedqhd.envs import make_env
from fedqhd.experiment import checkpoint, exchange
from fedqhd.experiment.build import World, build, warm_up
from fedqhd.experiment.config import DQN_METHODS, Config, known_keys, read_toml
from fedqhd.federation import plan_rounds, run_rounds
from fedqhd.files import write_bytes
from fedqhd.interfaces import Array, Episode, FedQHDError, Payload, Reply
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
        return dict(json.loads(summary_file.read_text()))
    # Bits of a matrix product depend on the number of BLAS threads; one is as fast at these sizes.
    with threadpool_limits(1):
        clients, world = build(config)
        engine = LocalEngine(clients, world.federation, listener.episode)
        try:
            warm_up(config)
            if not resume:
                clear(folder)
            write_bytes(folder / "config.toml", config.to_toml().encode())
            totals = run(config, clients, engine, listener)
            listener.evaluating()
            summary = summarise(config, clients, world, totals)
        finally:
            engine.close()
    write_bytes(summary_file, (json.dumps(summary, indent=2) + "\n").encode())
    checkpoint.path_of(folder).unlink(missing_ok=True)
    return summary


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
            if old != new and f.name != "out":
                raise FedQHDError(f"{f.name}={new!r} differs from the run to resume, which has {old!r}: leave it out")
        return
    if folder.exists() and not folder.is_dir():
        raise FedQHDError(f"out={str(folder)!r} is a file: give a folder")
    if held.exists() and not overwrite:
        raise FedQHDError(f"out={str(folder)!r} already holds a run: give another folder, --resume or --overwrite")


def clear(folder: Path) -> None:
    """Make room for a new run; called when it is sure to start, so that a mistake costs nothing."""
    results = "config.toml metrics.jsonl summary.json curves.png play.gif checkpoint.npz gap.json gap.png"
    for name in results.split():
        (folder / name).unlink(missing_ok=True)
    for model in (*(folder / "models").glob("client-*.npz"), exchange.path_of(folder)):
        model.unlink(missing_ok=True)


def run(config: Config, clients: list[LocalClient], engine: LocalEngine, listener: Listener) -> dict[str, Any]:
    """All rounds, a checkpoint after each. Returns the totals: steps, bytes and seconds."""
    folder = config.folder
    rounds = plan_rounds(config.episodes, config.round_episodes)
    done = checkpoint.load(folder, clients)
    start, teacher, totals = done or (0, None, {"rounds": 0, "steps": 0, "bytes_up": 0, "bytes_down": 0, "seconds": {}})
    metrics = folder / "metrics.jsonl"
    keep_rounds(metrics, start)
    listener.start(config, len(rounds), start)

    def spend(seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            totals["seconds"][name] = totals["seconds"].get(name, 0.0) + value

    wall, cpu = perf_counter(), process_time()
    for k, replies, latest in run_rounds(engine, engine.federation, rounds, start, teacher):
        spend({"wall": perf_counter() - wall, "cpu": process_time() - cpu})
        for reply in replies:
            spend({name: reply.seconds[name] for name in ("environment", "acting", "learning")})
        totals["rounds"] += 1
        totals["steps"] += sum(r.steps for r in replies)
        totals["bytes_up"] += sum(nbytes(r.payload) for r in replies)
        totals["bytes_down"] += nbytes(latest) * len(replies)
        with metrics.open("a") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows(k, replies))
        if k + 1 == len(rounds):
            exchange.save(folder, clients, engine.federation, replies, latest)
        checkpoint.save(folder, k + 1, latest, clients, totals)
        listener.round(k, replies)
        wall, cpu = perf_counter(), process_time()
    spend({"wall": perf_counter() - wall, "cpu": process_time() - cpu})
    return totals


def nbytes(payload: Payload) -> int:
    return sum(v.nbytes for v in payload.values())


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


def keep_rounds(metrics: Path, rounds: int) -> None:
    """Drop the lines of rounds that are to be run again."""
    metrics.parent.mkdir(parents=True, exist_ok=True)
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    write_bytes(metrics, "".join(line for line in whole if json.loads(line)["round"] < rounds).encode())


def training_returns(folder: Path, clients: int, episodes: int) -> Array:
    """The return of every training episode of every client, (N, episodes); NaN where none was recorded."""
    returns = np.full((clients, episodes), np.nan)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        returns[row["client"], row["episode"]] = row["return"]
    return returns


def summarise(c: Config, clients: list[LocalClient], world: World, totals: dict[str, Any]) -> dict[str, Any]:
    """Save the models, evaluate them, and say what came out."""
    greedy, nominal = [], []
    for client in clients:
        policy = Policy(client.agent.model(), world.scaler, c.env, client.agent.epsilon)
        policy.save(model_path(c.folder, client.index))
        for site, env in enumerate(client.envs, start=client.index):
            greedy.append(greedy_returns(policy, env, c.eval_episodes, c.seed, site).mean())
            if c.dynamics:
                nominal.append(greedy_returns(policy, make_env(c.env), c.eval_episodes, c.seed, site).mean())
    final = training_returns(c.folder, c.clients, c.episodes)[:, -LAST:].mean(axis=1)
    seconds = totals["seconds"]
    solvers = [client.agent for client in clients if isinstance(client.agent, LeastSquaresQHD)]
    split = {name: seconds[name] for name in ("environment", "acting", "learning")}
    return {
        "env": c.env,
        "method": c.method,
        "setting": c.setting,
        "learner": "dqn" if c.method in DQN_METHODS else c.learner,
        "protocol": type(world.federation).__name__,
        "seed": c.seed,
        "clients": c.clients,
        "episodes": c.episodes,
        "final_return": float(final.mean()),
        "greedy_return": float(np.mean(greedy)),
        "final_return_per_client": [float(x) for x in final],
        "greedy_return_per_client": [float(x) for x in greedy],
        "env_steps": totals["steps"],
        "wall_seconds": seconds["wall"],
        "cpu_seconds": seconds["cpu"],
        "split_seconds": {**split, "federation": seconds["wall"] - sum(split.values())},
        "bytes_up_per_round": totals["bytes_up"] / totals["rounds"],
        "bytes_down_per_round": totals["bytes_down"] / totals["rounds"],
        "agents": len(clients),
        "updates": sum(client.agent.updates for client in clients),
        **({"fit_alarms": sum(a.alarms for a in solvers)} if solvers else {}),
        **({"dynamics": world.dynamics, "greedy_return_nominal": float(np.mean(nominal))} if c.dynamics else {}),
        "version": __version__,
    }
