"""Measure what a federation of real processes costs on loopback, in bytes and in seconds per round.

The seconds are compared with Flower's own minimum: an app whose clients reply at once and with nothing. The two apps
take turns on the same SuperLink and SuperNodes. A relay between a client and the server counts all bytes, including
those of Flower's polling and of HTTP.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import tomli_w
from common import ROOT, head

from fedqhd.deploy.commands import FLWR, SUPERLINK
from fedqhd.deploy.join import SUPERNODE
from fedqhd.deploy.keys import make_keys, server_keys
from fedqhd.deploy.programs import flower_environment, free_port, is_listening, start, stop, write_rules
from fedqhd.deploy.rules import new_rules
from fedqhd.deploy.superlink import register, secured, sent_keys

APPS = ROOT / "benchmarks" / "apps"
CARTPOLE = {"env": "CartPole-v1", "round_episodes": 1, "aggregate": "mean", "anchor_source": "rollout"}
SENT: dict[str, dict[str, Any]] = {
    "Q at m = 200": {"setting": "heterogeneous", "anchors": 200, "dims": [500]},
    "Q at m = 1,000": {"setting": "heterogeneous", "anchors": 1000, "dims": [500]},
    "W at D = 1,000": {"setting": "homogeneous", "dims": [1000]},
}
UPLINKS = ("full", "float16", "int8")


class Relay:
    """Forwards connections to a port on this machine and counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.target, self.up, self.down = port, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near = self.listener.accept()[0]
            far = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self._pass, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, "down"), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()


class Link(NamedTuple):
    relay: Relay
    """Stands between the first node and the server if `relayed` was set."""
    nodes: str
    """The mapping of nodes to client keys, for the app; empty without keys."""


@contextmanager
def federation(home: Path, clients: int, relayed: bool = False, keyed: bool = False) -> Iterator[Link]:
    """Run a SuperLink and its SuperNodes.

    Args:
        home: A new folder for their files.
        clients: The number of SuperNodes.
        relayed: Whether a relay counts the bytes of the first node.
        keyed: Whether they use TLS and authenticate by keys.
    """
    port = free_port()
    home.mkdir(parents=True)
    if keyed:
        make_keys(home / "keys", clients, [], 1)
    keys = server_keys(home / "keys" / "server", clients) if keyed else None
    safe = {"root-certificates": str(keys.ca)} if keys else {"insecure": True}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"here": {"address": f"127.0.0.1:{port}", **safe}}}))
    rules = new_rules()._replace(keys=sent_keys(keys) if keys else ())
    write_rules(rules, home)
    relay, plain = Relay(port), ["--insecure"]
    with ExitStack() as stack, (home / "log").open("w") as log:
        secure = secured(keys) if keys else plain
        link = start([*SUPERLINK, *secure, "--host", "127.0.0.1", "--port", str(port)], home, log)
        stack.callback(stop, link)
        while not is_listening("127.0.0.1", port):
            time.sleep(0.2)
        nodes = register(f"127.0.0.1:{port}", keys, rules.secret) if keys else ""
        for i in range(clients):
            node = {"partition-id": i, "state-dir": str(home / f"state-{i}")}
            (home / f"node-{i}.toml").write_text(tomli_w.dumps(node))
            door = relay.port if relayed and i == 0 else port
            own = home / "keys" / f"client-{i}"
            secure = [
                "--root-certificates",
                str(own / "ca.crt"),
                "--auth-supernode-private-key",
                str(own / "client.key"),
            ]
            command = [
                *SUPERNODE, *(secure if keys else plain), "--superlink", f"127.0.0.1:{door}",
                "--host", "127.0.0.1", "--port", str(free_port()), "--node-config", str(home / f"node-{i}.toml"),
            ]  # fmt: skip
            stack.callback(stop, start(command, home, log))
        yield Link(relay, nodes)


def play(home: Path, app: str, run: dict[str, Any], relay: Relay | None = None) -> tuple[list[float], list[list[int]]]:
    """Run an app. Return when each of its rounds ended, in seconds, and what the relay had counted by then."""
    marks = home / "marks"
    marks.write_text("")
    (home / "run.toml").write_text(tomli_w.dumps({**run, "marks": str(marks)}))
    command = [*FLWR, "run", str(APPS / app), "here", "--stream", "-c", str(home / "run.toml")]
    with (home / "flwr.log").open("w") as log:
        flwr = subprocess.Popen(command, env=flower_environment(home), stdout=log, stderr=subprocess.STDOUT)
        counted: list[list[int]] = []
        while flwr.poll() is None:
            seen = len(marks.read_text().splitlines())
            while relay and len(counted) < seen:
                counted.append([relay.up, relay.down])
            time.sleep(0.02)
    return [float(line) for line in marks.read_text().splitlines()], counted


def settings(home: Path, **more: Any) -> str:
    """Write the settings of a run to a file and return its path. A former run in the same folder is removed."""
    path = home / "settings.toml"
    shutil.rmtree(home / "run", ignore_errors=True)
    path.write_text(tomli_w.dumps({**CARTPOLE, "eval_episodes": 1, "out": str(home / "run"), **more}))
    return str(path)


def bytes_a_round(folder: Path, rounds: int, uplinks: Sequence[str]) -> list[dict[str, Any]]:
    """Measure the bytes of one of two clients. (A federation of one has a single encoder and would send W.)"""
    rows = []
    with federation(folder / "bytes", 2, relayed=True) as (relay, _):
        for what, setting in SENT.items():
            for uplink in uplinks:
                home = folder / "bytes"
                config = settings(home, clients=2, episodes=rounds, uplink=uplink, **setting)
                _, counted = play(home, "ours", {"config": config}, relay)
                summary = json.loads((home / "run" / "summary.json").read_text())
                each = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(counted)]
                rows.append({
                    "sent": what, "uplink": uplink, "numbers": int(summary["bytes_up_per_round"] / 2),
                    "up": int(median(up for up, _ in each)), "down": int(median(down for _, down in each)),
                    "rounds": len(each), "commit": head(),
                })  # fmt: skip
                print(rows[-1], flush=True)
    return rows


VARIANTS: dict[str, dict[str, Any]] = {
    "Flower's minimum": {},
    "FedQHD": {},
    "FedQHD, TLS and keys": {},
    "FedQHD, differential privacy": {"dp_clip": 200.0},
    "FedQHD, SecAgg+": {"secure": "secagg+"},
}


def seconds_a_round(folder: Path, clients: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Measure all variants in turn, in alternating order, so that a drift of the machine affects all of them alike."""
    took: dict[str, list[float]] = {name: [] for name in VARIANTS}
    homes = folder / "plain", folder / "keyed"
    with federation(homes[0], clients) as plain, federation(homes[1], clients, keyed=True) as keyed:
        for repeat in range(repeats):
            for name in list(VARIANTS)[:: -1 if repeat % 2 else 1]:
                home, link = (homes[1], keyed) if "keys" in name else (homes[0], plain)
                config = settings(home, clients=clients, episodes=rounds, **SENT["Q at m = 200"], **VARIANTS[name])
                empty = name == "Flower's minimum"
                run = {"clients": clients, "rounds": rounds} if empty else {"config": config, "nodes": link.nodes}
                ends, _ = play(home, "empty" if empty else "ours", run)
                each = [b - a for a, b in pairwise(ends)]
                print(name, [round(x, 2) for x in each], flush=True)
                took[name] += each
    least = median(took["Flower's minimum"])
    rows = [
        {
            "variant": name,
            "seconds": round(median(each), 2),
            "ratio": round(median(each) / least, 3),
            "rounds": len(each),
        }
        for name, each in took.items()
    ]
    return {"clients": clients, "repeats": repeats, "rows": rows, "commit": head()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=["bytes", "seconds"], choices=["bytes", "seconds"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--uplinks", nargs="+", default=UPLINKS, choices=UPLINKS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "federation.json")
    wanted = parser.parse_args()
    file = wanted.out
    result = json.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if "seconds" in wanted.only:
            result["seconds"] = seconds_a_round(Path(folder), 3, wanted.rounds, wanted.repeats)
        if "bytes" in wanted.only:
            result["bytes"] = bytes_a_round(Path(folder), wanted.rounds, wanted.uplinks)
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
