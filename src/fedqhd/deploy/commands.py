"""`fedqhd federate server` and `fedqhd federate client`, one command per machine, which run Flower's programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fedqhd.core import alive
from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.deploy.keys import ServerKeys, check_certificate, client_keys, server_keys
from fedqhd.deploy.programs import (
    check_port,
    free_port,
    is_listening,
    is_loopback,
    open_log,
    parse_address,
    program,
    start,
    stop,
)
from fedqhd.deploy.settings import check_client, check_server, resume_command
from fedqhd.deploy.superlink import register, secured
from fedqhd.runs.folder import claim, clear

START = 60.0
"""Seconds that the SuperLink has to start."""
RETRY = 2.0
"""Seconds before a node that lost its server tries to connect again."""
POLL = 0.2
"""Seconds between two looks at a log or a port."""
GIVE_UP = 120.0
"""Seconds after which a refused node gives up. Flower counts a node that died as online for 48 seconds and refuses it
until then."""
CONNECTED, REFUSED = "SuperNode ID:", "[code: 2004]"
"""What the log of a node contains when the server accepts or refuses it."""
ERROR_PREFIX = "fedqhd: "
"""The beginning of a line in a log that states an error for the user."""


class Waits(NamedTuple):
    """How long the server waits for clients, in seconds except for the quorum."""

    wait: float = 600.0
    """For all clients to join."""
    quorum: float = 0.5
    """The share of the clients whose replies are enough to end a round after `grace`."""
    grace: float = 30.0
    limit: float = 3600.0
    """The longest duration of a round."""

    def check(self) -> None:
        """Raise FedQHDError if a value is out of range."""
        if not 0 < self.quorum <= 1:
            raise FedQHDError(f"quorum={self.quorum:g} is not possible: it must be above 0 and at most 1")
        for name in ("wait", "grace", "limit"):
            if not getattr(self, name) >= 0:
                raise FedQHDError(f"{name}={getattr(self, name):g} is not possible: it must be at least 0 seconds")


def check_exposed(name: str, host: str, safe: bool) -> None:
    """Refuse to talk to other machines without keys, unless the user has accepted that (`safe`).

    `name` is the setting that holds `host`.
    """
    if not (is_loopback(host) or safe):
        raise FedQHDError(
            f"{name}={host!r} is not on loopback: give --keys, which fedqhd federate keys makes, or --insecure on a "
            "network that you trust"
        )


def serve(
    config: Config,
    host: str,
    port: int,
    waits: Waits,
    *,
    keys: Path | None = None,
    insecure: bool = False,
    overwrite: bool = False,
    resume: bool = False,
) -> dict[str, Any]:
    """Serve a federation until it is trained, and print its log.

    Args:
        config: The settings of the run.
        host: The address to listen on.
        port: The port to listen on.
        waits: How long to wait for clients.
        keys: The folder of the server's keys; None uses neither keys nor encryption.
        insecure: Whether to allow other machines to connect without keys.
        overwrite: Whether to replace a run in the folder of results.
        resume: Whether to resume a run in the folder of results.

    Returns:
        The summary of the run.

    Raises:
        FedQHDError: If the settings do not allow it, or if a program fails.
    """
    waits.check()
    check_server(config)
    check_exposed("host", host, insecure or keys is not None)
    own = server_keys(keys.absolute(), config.clients) if keys else None
    claim(config, overwrite, resume)
    summary = config.folder / "summary.json"
    if resume and summary.exists():
        return dict(json.loads(summary.read_text()))
    check_port(host, port)
    with alive.training(config.folder):  # refuses a folder in which another process trains
        if not resume:
            clear(config.folder)
    home = (config.folder / "flower").absolute()
    here = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"[{here}]:{port}" if ":" in here else f"{here}:{port}"
    app, log = write_home(config, home, address, own)
    link = run = None
    try:
        with open_log(home / "superlink.log") as superlink_log, open_log(home / "flwr.log") as flwr_log:
            secure = secured(own) if own else ["--insecure"]
            link = start([*SUPERLINK, *secure, "--host", host, "--port", str(port)], home, superlink_log)
            wait_for(link, here, port, home)
            nodes = ""
            if own:
                check_certificate(here, port, own.ca)
                nodes = register(address, own)
            options = {"config": str(home / "settings.toml"), "log": str(log), "resume": resume, "nodes": nodes}
            write_bytes(home / "run.toml", tomli_w.dumps({**options, **waits._asdict()}).encode())
            print(f"listening on {host}:{port}; clients join with fedqhd federate client", flush=True)
            run = start(
                [program("flwr"), "run", str(app), NAME, "--stream", "-c", str(home / "run.toml")], home, flwr_log
            )
            error = ""
            for line in follow(log, run):
                if line.startswith(ERROR_PREFIX):
                    error = line.removeprefix(ERROR_PREFIX).strip()
                else:
                    print(line, end="", flush=True)
    finally:
        stop(run)
        stop(link)
    if not summary.exists():
        unknown = f"the server's program ended early, and {home / 'flwr.log'} may say why"
        raise FedQHDError(f"{error or unknown}; resume with: {resume_command(config)}")
    return dict(json.loads(summary.read_text()))


NAME = "fedqhd"
SUPERLINK = (sys.executable, "-m", "fedqhd.deploy.superlink", "--disable-runtime-dependency-installation")


def write_home(config: Config, home: Path, address: str, keys: ServerKeys | None) -> tuple[Path, Path]:
    """Write the files of Flower's programs to `home`: the app, the settings and the address of the SuperLink.

    Returns:
        The folder of the app, and the file to which the server's program logs.
    """
    app, log = home / "app", home / "server.log"
    shutil.rmtree(app, ignore_errors=True)
    with resources.as_file(resources.files("fedqhd.deploy") / "app") as ours:
        shutil.copytree(ours, app)
    safe = {"root-certificates": str(keys.ca)} if keys else {"insecure": True}
    files = {
        "config.toml": tomli_w.dumps({"superlink": {NAME: {"address": address, **safe}}}),
        "settings.toml": config.to_toml(),
        "server.log": "",
    }
    for name, text in files.items():
        write_bytes(home / name, text.encode())
    return app, log


def wait_for(link: subprocess.Popen[str], host: str, port: int, home: Path) -> None:
    """Wait until the SuperLink listens; raise FedQHDError if it ends or does not within START seconds."""
    end = time.monotonic() + START
    while not is_listening(host, port):
        if link.poll() is not None or time.monotonic() > end:
            raise FedQHDError(f"Flower's SuperLink did not start: {home / 'superlink.log'} says why")
        time.sleep(POLL)


def follow(log: Path, writer: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the lines of a log as they are written, until the program `writer` has ended."""
    rest = ""
    with log.open() as f:
        while True:
            ended = writer.poll() is not None
            for line in f:
                rest += line
                if rest.endswith("\n"):
                    yield rest
                    rest = ""
            if ended:
                return
            time.sleep(POLL)


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
    home = (state_dir / "flower").absolute()
    for name, value in (("epsilon", epsilon), ("encoder_seed", encoder_seed)):
        if value is not None and not value >= 0:
            raise FedQHDError(f"{name}={value} is not possible: it must be at least 0")
    node = {
        "partition-id": client, "state-dir": str(state_dir.absolute()),
        "config": str(Path(file).absolute()) if file else None, "epsilon": epsilon, "encoder-seed": encoder_seed,
    }  # fmt: skip
    write_bytes(home / "node.toml", tomli_w.dumps({k: v for k, v in node.items() if v is not None}).encode())
    if port:
        check_port("127.0.0.1", port)
    safe = ["--root-certificates", str(own.ca), "--auth-supernode-private-key", str(own.key)] if own else ["--insecure"]
    print(f"client {client}: looking for the server at {server}", flush=True)
    supernode, done, refused = None, False, 0.0
    while not done:
        if own:
            wait_for_certificate(host, server_port, own.ca)
        command = [
            program("flower-supernode"), *safe, "--superlink", server, "--host", "127.0.0.1",
            "--port", str(port or free_port()), "--node-config", str(home / "node.toml"),
        ]  # fmt: skip
        try:
            with open_log(home / "node.log") as log:
                supernode = start(command, home, log)
            for line in follow(home / "node.log", supernode):
                done = done or relay_line(line, client, state_dir)
                if REFUSED in line:
                    refused = refused or time.monotonic()
                elif CONNECTED in line:
                    refused = 0.0
                # A trained client stays until the server is gone, because the server ignores the last answer of a node
                # that has left.
                if done and "Connection attempt failed" in line:
                    break
        finally:
            stop(supernode)
        if refused and time.monotonic() > refused + GIVE_UP:
            raise FedQHDError(
                f"server={server!r} refuses client {client}: it does not know the client's key, or another node uses it"
            )
        if not done:
            why = "the server refuses its key so far" if refused else "the server is gone"
            print(f"client {client}: {why}; trying again", flush=True)
            time.sleep(RETRY)


def wait_for_certificate(host: str, port: int, ca: Path) -> None:
    """Wait until the server answers; raise FedQHDError if its certificate is not valid."""
    while True:
        try:
            return check_certificate(host, port, ca)
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
    return False
