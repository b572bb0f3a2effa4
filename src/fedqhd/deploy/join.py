"""`fedqhd federate client`: take part in a federation with Flower's SuperNode."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import tomli_w

from fedqhd.core.alive import is_training, training
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.deploy.clock import difference
from fedqhd.deploy.commands import ERROR_PREFIX, POLL, check_exposed
from fedqhd.deploy.keys import client_keys
from fedqhd.deploy.nodes import TAKEN
from fedqhd.deploy.probe import server_time
from fedqhd.deploy.programs import (
    RULES,
    adopt_orphans,
    check_port,
    free_port,
    open_log,
    parse_address,
    start,
    stop,
    write_rules,
)
from fedqhd.deploy.rules import HOME, folder_name, new_rules
from fedqhd.deploy.settings import check_client

RETRY = 2.0
"""Seconds before a node that lost its server tries to connect again."""
GIVE_UP = 120.0
"""Seconds after which a refused node gives up. Flower counts a node that died as online for 48 seconds and refuses it
until then."""
CONNECTED, REFUSED = "SuperNode ID:", "[code: 2004]"
"""What the log of a node contains when the server accepts or refuses it."""
GIVEN_UP = ("Giving up reconnection", "SSL/TLS handshake error")
"""What it contains when the node has given up, after which it may neither work nor end."""
SUPERNODE = (sys.executable, "-m", "fedqhd.deploy.supernode")


def join(
    server: str,
    client: int,
    state_dir: Path,
    file: str,
    port: int = 0,
    keys: Path | None = None,
    insecure: bool = False,
    epsilon: float | None = None,
    encoder_seed: int | None = None,
) -> None:
    """Take part in a federation until the client's model is trained.

    The client tries to connect for as long as it takes, and again whenever it loses its server.

    Args:
        server: The address of the server, HOST:PORT.
        client: The number of the client, from 0.
        state_dir: The folder of its state and its model.
        file: A TOML file of its own settings, or "".
        port: The port on loopback for its own programs; 0 takes any free port.
        keys: The folder of the client's keys; None uses neither keys nor encryption.
        insecure: Whether to allow a server on another machine without keys.
        epsilon: The largest epsilon that its answers may spend in all; None sets no limit.
        encoder_seed: The seed of its encoder; None draws one that only the client knows.

    Raises:
        FedQHDError: If the arguments do not allow it, or if the server refuses the client for GIVE_UP seconds.
    """
    check_client(file)
    host, server_port = parse_address(server)
    check_exposed("server", host, insecure or keys is not None)
    own = client_keys(keys.absolute()) if keys else None
    if client < 0:
        raise FedQHDError(f"client={client} is not possible: clients are numbered from 0")
    for name, value in (("epsilon", epsilon), ("encoder_seed", encoder_seed)):
        if value is not None and not value >= 0:
            raise FedQHDError(f"{name}={value} is not possible: it must be at least 0")
    if port:
        check_port("127.0.0.1", port)
    home = (state_dir / HOME).absolute()
    if is_training(home):
        raise FedQHDError(f"state_dir={str(state_dir)!r} is in use by another client: give another folder")
    adopt_orphans()
    with training(home, "state_dir"):
        node = {
            "partition-id": client, "state-dir": str(state_dir.absolute()),
            "config": str(Path(file).absolute()) if file else None, "epsilon": epsilon, "encoder-seed": encoder_seed,
        }  # fmt: skip
        write_bytes(home / "node.toml", tomli_w.dumps({k: v for k, v in node.items() if v is not None}).encode())
        safe = (
            ["--root-certificates", str(own.ca), "--auth-supernode-private-key", str(own.key)]
            if own
            else ["--insecure"]
        )
        print(f"client {client}: looking for the server at {server}", flush=True)
        node_end = NodeEnd()
        while not node_end.trained:
            offset = wait_for_server(host, server_port, own.ca if own else None)
            if difference(offset):
                print(f"client {client}: {difference(offset)}", flush=True)
            rules = new_rules(time.time() + offset - time.monotonic())
            write_rules(rules._replace(client=f"{client} {folder_name(home)}"), home)
            command = [
                *SUPERNODE, *safe, "--superlink", server, "--host", "127.0.0.1",
                "--port", str(port or free_port()), "--node-config", str(home / "node.toml"),
            ]  # fmt: skip
            node_end = run_node(command, home, client, state_dir, node_end.refused)
            if node_end.refused and time.monotonic() > node_end.refused + GIVE_UP:
                raise FedQHDError(
                    f"server={server!r} refuses client {client}: it does not know the client's key, or another node "
                    "uses it"
                )
            if not node_end.trained:
                print(f"client {client}: {node_end.reason(home)}; trying again", flush=True)
                time.sleep(RETRY)


class NodeEnd(NamedTuple):
    """How far a node had got when it ended."""

    trained: bool = False
    connected: bool = False
    refused: float = 0.0
    """When the server first refused the client, by the monotonic clock; 0 if it does not."""

    def reason(self, home: Path) -> str:
        """Say why a node that is not trained has ended."""
        if self.refused:
            return "the server refuses its key so far"
        return "the server is gone" if self.connected else f"its node could not connect, as {home / 'node.log'} tells"


def run_node(command: list[str], home: Path, client: int, state_dir: Path, refused: float) -> NodeEnd:
    """Run a SuperNode until it ends or the client is trained, and print what concerns the user.

    Args:
        command: The program and its arguments.
        home: Where Flower keeps its files.
        client: The number of the client.
        state_dir: The folder of its model.
        refused: When the server first refused the client in earlier attempts; see `NodeEnd`.

    Raises:
        FedQHDError: If the server has another client of this number.
    """
    supernode, done, connected = start(command, home, subprocess.PIPE), False, False
    try:
        for line in lines_of(supernode, home / "node.log"):
            done = done or relay_line(line, client, state_dir)
            if TAKEN in line:
                raise FedQHDError(line.partition(REFUSED)[2].strip())
            if REFUSED in line:
                refused = refused or time.monotonic()
            elif CONNECTED in line:
                connected, refused = True, 0.0
            # A trained client stays until the server is gone, because the server ignores the last answer of a node that
            # has left.
            if (done and "Connection attempt failed" in line) or any(words in line for words in GIVEN_UP):
                break
    finally:
        stop(supernode)
        (home / RULES).unlink(missing_ok=True)
    return NodeEnd(done, connected, refused)


def lines_of(program: subprocess.Popen[str], log: Path) -> Iterator[str]:
    """Yield the lines that a program and its children print, until it has ended, and copy them to a log.

    They come through a pipe, so that the user still learns about a full disk when the log can no longer be written.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    output = program.stdout
    assert output is not None

    def read() -> None:
        try:
            copy = open_log(log)
        except OSError:
            copy = open(os.devnull, "a")  # noqa: SIM115
        for line in output:
            lines.put(line)
            with suppress(OSError):
                copy.write(line)
                copy.flush()

    threading.Thread(target=read, daemon=True).start()
    while True:
        ended = program.poll() is not None
        try:
            while True:
                yield lines.get(timeout=POLL)
        except queue.Empty:
            if ended:
                return


def wait_for_server(host: str, port: int, ca: Path | None) -> float:
    """Wait until the server answers, and return its time minus that of this machine in seconds; see `server_time`."""
    while True:
        try:
            return server_time(host, port, ca) - time.time()
        except OSError:
            time.sleep(RETRY)


def relay_line(line: str, client: int, state_dir: Path) -> bool:
    """Print a line of a node's log if it concerns the user, and tell whether the client is sending its last message."""
    if CONNECTED in line:
        print(f"client {client}: connected", flush=True)
    elif line.startswith((f"client {client}:", ERROR_PREFIX)):
        print(line, end="", flush=True)
    elif "Sending: evaluate message" in line:
        print(f"client {client}: trained; its model is in {state_dir}/models", flush=True)
        return True
    elif "Failed to send message" in line:
        why = line.partition("Failed to send message ")[2].partition(": ")[2].strip()
        print(f"client {client}: its answer was not accepted: {why}", flush=True)
    return False
