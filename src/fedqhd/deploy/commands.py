"""`fedqhd federate server`: serve a federation with Flower's SuperLink."""

from __future__ import annotations

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
from fedqhd.core.files import WriteFailed, write_bytes
from fedqhd.deploy.guard import LOOPBACK
from fedqhd.deploy.keys import ServerKeys, certified_names, check_certificate, server_keys
from fedqhd.deploy.programs import (
    RULES,
    adopt_orphans,
    check_port,
    is_listening,
    is_loopback,
    open_log,
    start,
    stop,
    write_rules,
)
from fedqhd.deploy.rules import Rules, limited, new_rules
from fedqhd.deploy.settings import check_server, resume_command
from fedqhd.deploy.superlink import register, secured, sent_keys
from fedqhd.envs.make import spaces_of
from fedqhd.runs.folder import claim, clear
from fedqhd.runs.summary import read_summary

START = 60.0
"""Seconds that the SuperLink has to start."""
POLL = 0.2
"""Seconds between two looks at a log or a port."""
ROOM = 1 << 20
"""The bytes that there must be room for on a disk that is not full."""
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
    rules = server_rules(config, host, own)
    claim(config, overwrite, resume)
    summary = config.folder / "summary.json"
    if resume and summary.exists():
        return read_summary(config.folder)
    check_port(host, port)
    adopt_orphans()
    with alive.training(config.folder):  # refuses a folder in which another process trains
        if not resume:
            clear(config.folder)
    home = (config.folder / "flower").absolute()
    here = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"[{here}]:{port}" if ":" in here else f"{here}:{port}"
    app, log = write_home(config, home, address, own)
    write_rules(rules, home)
    link = run = None
    try:
        with open_log(home / "superlink.log") as superlink_log, open_log(home / "flwr.log") as flwr_log:
            secure = secured(own) if own else ["--insecure"]
            link = start([*SUPERLINK, *secure, "--host", host, "--port", str(port)], home, superlink_log)
            wait_for(link, here, port, home)
            nodes = ""
            if own:
                check_certificate(here, port, own.ca)
                nodes = register(address, own, rules.secret)
            options = {"config": str(home / "settings.toml"), "log": str(log), "resume": resume, "nodes": nodes}
            write_bytes(home / "run.toml", tomli_w.dumps({**options, **waits._asdict()}).encode())
            print(f"listening on {host}:{port}; clients join with fedqhd federate client", flush=True)
            run = start([*FLWR, "run", str(app), NAME, "--stream", "-c", str(home / "run.toml")], home, flwr_log)
            error = ""
            for line in follow(log, run):
                if line.startswith(ERROR_PREFIX):
                    error = line.removeprefix(ERROR_PREFIX).strip()
                else:
                    print(line, end="", flush=True)
    finally:
        stop(run)
        stop(link)
        (home / RULES).unlink(missing_ok=True)  # its secret is of no use to anyone now
    if not summary.exists():
        raise FedQHDError(f"{error or likely_cause(home)}; resume with: {resume_command(config)}")
    return read_summary(config.folder)


def likely_cause(home: Path) -> str:
    """Say why the server's program may have ended without a word. Where a disk is full, so is that of its log."""
    try:
        write_bytes(home / "room", bytes(ROOM))
    except WriteFailed as error:
        return str(error)
    finally:
        (home / "room").unlink(missing_ok=True)
    return f"the server's program ended early, and {home / 'flwr.log'} may say why"


NAME = "fedqhd"
FLWR = (sys.executable, "-m", "fedqhd.deploy.flower", "flwr")
SUPERLINK = (sys.executable, "-m", "fedqhd.deploy.superlink", "--disable-runtime-dependency-installation")


def server_rules(config: Config, host: str, keys: ServerKeys | None) -> Rules:
    """Return the rules of a server that listens on `host`."""
    spaces = spaces_of(config.env)
    rules = limited(new_rules(), config, spaces.n, spaces.actions)
    if keys:
        names = (*LOOPBACK, host, *certified_names(keys.certificate))
        return rules._replace(names=tuple(name.lower() for name in names), keys=sent_keys(keys))
    # On a network that the user trusts, the names of the server are not known.
    return rules._replace(names=(*LOOPBACK, host)) if is_loopback(host) else rules._replace(names=())


def write_home(config: Config, home: Path, address: str, keys: ServerKeys | None) -> tuple[Path, Path]:
    """Write the files of Flower's programs to `home`: the app, the settings and the address of the SuperLink.

    Returns:
        The folder of the app, and the file to which the server's program logs.
    """
    app, log = home / "app", home / "server.log"
    shutil.rmtree(app, ignore_errors=True)
    with resources.as_file(resources.files("fedqhd.deploy") / "app") as ours:
        for file in ours.iterdir():
            write_bytes(app / file.name, file.read_bytes())
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
