"""Hurts a real federation over TLS at random moments, then plays its rounds again in one process and compares.

    python tests/soak.py FOLDER SECONDS SEED

Rounds may lose members, but every number must be the one that the rest of the clients make of what is left: the same
rounds are played in one process by the clients that took part, and must give the same bits.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chaos import SERVER, Fault, Party, Relay, plan
from fedqhd.deploy.keys import make_keys
from fedqhd.deploy.programs import free_port
from fedqhd.engines import LocalEngine
from fedqhd.runs.callback import Callback
from in_one_process import in_one_process
from processes import FEDQHD, SHIFTED, end, gone_pid, python_path, tree

SETTINGS = """
env = "CartPole-v1"
setting = "heterogeneous"
clients = {clients}
episodes = 100000
round_episodes = 2
anchors = 40
anchor_source = "teacher"
callbacks = ["soak:StopWhenAsked"]
"""
LEARNERS = ("replay", "least-squares", "online")
CLIENT = """
env = "saboteur:Slow-v0"
learner = "{learner}"
dims = [{dim}]
eval_episodes = 1
"""
WAITS = "--quorum 0.5 --grace 15 --limit 60 --wait 600"


class StopWhenAsked(Callback):
    """Ends the run after the round in which the file that FEDQHD_TEST_STOP names appears."""

    def on_round(self, training, replies):
        if Path(os.environ["FEDQHD_TEST_STOP"]).exists():
            training.stop("the soak is over")


class Chaos(NamedTuple):
    """How long and how badly a federation is hurt."""

    seconds: float
    every: float
    """Seconds between two faults, on average."""
    longest: float
    """The longest duration of a fault."""
    seed: int
    clients: int = 5
    pace: float = 5.0
    """Seconds that an episode takes."""
    patience: float = 600.0
    """Seconds after the last fault in which all clients must be back."""


class Soak:
    """A federation on this machine, each client behind a relay of its own."""

    def __init__(self, folder: Path, chaos: Chaos) -> None:
        self.folder, self.chaos = folder, chaos
        self.files = {f"c{i}.toml": None for i in range(chaos.clients)}
        self.trained: list[set[int]] = [set() for _ in self.files]
        """The rounds after which each client had a state, as long as it goes on from them."""
        self.restarts: Counter[str] = Counter()
        self.hurt: Counter[str] = Counter()
        make_keys(folder / "keys", chaos.clients, [], 1)
        (folder / "server.toml").write_text(SETTINGS.format(clients=chaos.clients))
        port = free_port()
        serve = f"server --config server.toml --out run --resume --port {port} --keys keys/server {WAITS}"
        self.server = self._party(SERVER, serve, None)
        self.clients = []
        for i, file in enumerate(self.files):
            (folder / file).write_text(CLIENT.format(learner=LEARNERS[i % 3], dim=64 + 16 * i))
            relay = Relay(port)
            join = f"client --server 127.0.0.1:{relay.port} --client {i} --config {file} --state-dir s{i} "
            self.clients.append(self._party(str(i), f"{join} --keys keys/client-{i} --encoder-seed 0", relay))
        self.parties = {party.name: party for party in (self.server, *self.clients)}
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    def _party(self, name: str, command: str, relay: Relay | None) -> Party:
        clock = self.folder / f"clock-{name}"
        clock.mkdir()
        (clock / "sitecustomize.py").write_text(SHIFTED)
        (clock / "shift").write_text("0")
        environment = {
            **os.environ, "PYTHONPATH": python_path(clock, Path(__file__).parent), "SHIFT": str(clock / "shift"),
            "FEDQHD_TEST_PACE": str(self.chaos.pace), "FEDQHD_TEST_STOP": str(self.folder / "stop"),
        }  # fmt: skip
        words = [str(FEDQHD), "federate", *command.split()]
        return Party(name, words, relay, clock / "shift", cwd=self.folder, env=environment)

    def _watch(self) -> None:
        """Note which states the clients have. A server that was killed makes them go back behind some."""
        while not self._over.wait(0.1):
            for i, rounds in enumerate(self.trained):
                numbers = {int(p.stem[-6:]) for p in (self.folder / f"s{i}").glob("run-*/checkpoint-??????.npz")}
                if numbers:
                    self.trained[i] = {k for k in rounds if k < max(numbers)} | {n - 1 for n in numbers}

    def rows(self) -> list[dict]:
        """All complete lines of the metrics."""
        with suppress(FileNotFoundError):
            return [json.loads(x) for x in (self.folder / "run" / "metrics.jsonl").read_text().splitlines(True)
                    if x.endswith("\n")]  # fmt: skip
        return []

    def counted(self) -> list[set[int]]:
        """The rounds in which the reply of each client came."""
        rows = self.rows()
        return [{row["round"] for row in rows if row["client"] == i} for i in range(len(self.files))]

    def all_present(self, since: int) -> bool:
        """Whether a round after `since` had all clients."""
        return any(k > since for k in set.intersection(*self.counted()))

    def run(self) -> None:
        self._watcher.start()
        try:
            assert self._wait(lambda: self.all_present(-1), 180), "the federation did not begin"
            c = self.chaos
            self._hurt(plan(c.seed, c.seconds, c.every, c.longest, [client.name for client in self.clients]))
            last = max(row["round"] for row in self.rows())
            self.back = self._wait(lambda: self.all_present(last), self.chaos.patience)
            (self.folder / "stop").touch()
            ended = self._wait(lambda: self.server.process.poll() == 0, 180)
            assert ended, f"the server did not end: {''.join(self.server.said[-20:])}"
            time.sleep(5)
        finally:
            self._over.set()
            families = [pid for party in self.parties.values() if party.alive() for pid in tree(party.process)]
            for party in self.parties.values():
                end(party.process)
        assert all(map(gone_pid, families))

    def _hurt(self, faults: list[Fault]) -> None:
        began, healing = time.monotonic(), []
        while faults or healing:
            now = time.monotonic() - began
            for at, party, kind in [h for h in healing if h[0] <= now]:
                party.heal(kind)
                healing.remove((at, party, kind))
            while faults and faults[0].at <= now:
                fault = faults.pop(0)
                party = self.parties[fault.party]
                print(f"{now:7.1f} {fault.kind} {fault.party} for {fault.seconds:.1f} s", flush=True)
                self.hurt[f"{fault.kind} {'server' if party is self.server else 'client'}"] += 1
                party.hurt(fault)
                if not any(h[1:] == (party, fault.kind) for h in healing):
                    healing.append((now + fault.seconds, party, fault.kind))
            self._wait(lambda: False, 0.2)

    def _wait(self, done, seconds: float) -> bool:
        """Wait until something is so. Programs that have ended meanwhile are started again, as their users would."""
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            for party in self.parties.values():
                if party.alive() or party.dead or party.process.poll() == 0:
                    continue
                last = party.said[-1].strip() if party.said else ""
                print(f"        {party.name} ended with {party.process.poll()}: {last}", flush=True)
                self.restarts[party.name] += 1
                party.begin()
            time.sleep(0.1)
        return bool(done())

    def check(self) -> dict:
        """Compare all that the run left with what one process makes of the same rounds."""
        rows, counted, run = self.rows(), self.counted(), self.folder / "run"
        rounds = 1 + max(row["round"] for row in rows)
        summary = json.loads((run / "summary.json").read_text())
        unsaid = [line for p in self.parties.values() for line in p.said if line.startswith("Traceback")]
        assert not unsaid, "a command ended with a traceback"
        lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
        assert [line["round"] for line in lines] == list(range(rounds))
        assert summary["env_steps"] == sum(row["length"] for row in rows)
        replies = summary["replies"]
        assert not replies["refused"], replies
        missed = Counter(int(key.split("/")[0]) for key, n in replies["absent"].items() for _ in range(n))
        for i, mine in enumerate(counted):
            assert mine <= self.trained[i], f"an answer of client {i} left before its state was on its disk"
            assert missed[i] == rounds - len(mine), (i, missed[i], rounds, len(mine))
        os.environ["FEDQHD_TEST_PACE"] = "0"
        again = in_one_process(
            self.folder, self.files, lambda clients, f: Replayed(clients, f, counted, self.trained), rounds
        )
        assert (run / "metrics.jsonl").read_text() == again.metrics
        finished = [i for i, value in enumerate(summary["greedy_return_per_client"]) if value is not None]
        for i in finished:
            assert (self.folder / f"s{i}" / "models" / f"client-{i}.npz").read_bytes() == again.models[i], i
        left_out = {key.split("/")[1]: n for key, n in again.server.counts.items() if key.startswith("left out/")}
        assert {str(k): n for k, n in replies["left out"].items()} == left_out
        assert not list(self.folder.rglob("rules.json")) or not self.back
        late = sum(len(t & set(range(rounds)) - c) for t, c in zip(self.trained, counted, strict=True))
        return {
            "seed": self.chaos.seed, "faults": dict(sorted(self.hurt.items())), "rounds": rounds,
            "replies": sum(map(len, counted)), "missed": sum(missed.values()), "trained but too late": late,
            "all back": self.back, "ended by themselves": dict(self.restarts), "models compared": len(finished),
        }  # fmt: skip


class Replayed(LocalEngine):
    """Lets each client train in the rounds in which it did, and answer in those in which its answer counted."""

    def __init__(self, clients, federation, counted, trained) -> None:
        super().__init__(clients, federation)
        self.k, self.counted, self.trained = 0, counted, trained

    def round(self, teacher, quota, clients=None):
        replies = super().round(teacher, quota, [i for i, t in enumerate(self.trained) if self.k in t])
        self.k += 1
        return [reply for reply in replies if self.k - 1 in self.counted[reply.client]]


if __name__ == "__main__":
    where, seconds, seed = sys.argv[1:]
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    soak = Soak(Path(where), Chaos(float(seconds), 25.0, 40.0, int(seed)))
    soak.run()
    print(json.dumps(soak.check(), indent=2))
