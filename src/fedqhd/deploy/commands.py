"""`fedqhd federate server` and `fedqhd federate client`: one command a machine, thin over Flower's programs."""

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

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.deploy.keys import ServerKeys, check_certificate, client_keys, server_keys
from fedqhd.deploy.programs import answers, check_port, free_port, is_loopback, parse_address, program, start, stop
from fedqhd.deploy.settings import check_client, check_server
from fedqhd.deploy.superlink import register, secured
from fedqhd.runs.run import claim, clear

START = 60.0
"""Seconds that the SuperLink has to start."""
AGAIN = 2.0
"""Seconds before a node that lost its server looks for it again."""
LOOK = 0.2
"""Seconds between two looks at a log."""
GIVE_UP = 120.0
"""Seconds after which a refused node gives up. One that died counts as at work for 48, and may not come back before."""
CONNECTED, REFUSED = "SuperNode ID:", "[code: 2004]"
"""What a node's log says of it."""
OURS = "fedqhd: "
"""How the sentences begin that say what is wrong."""


class Waits(NamedTuple):
    """How long the server waits, and for whom; in seconds, but for the quorum."""

    wait: float = 600.0
    quorum: float = 0.5
    grace: float = 30.0
    limit: float = 3600.0

    def check(self) -> None:
        if not 0 < self.quorum <= 1:
            raise FedQHDError(f"quorum={self.quorum:g} is not possible: it must be above 0 and at most 1")
        for name in ("wait", "grace", "limit"):
            if not getattr(self, name) >= 0:
                raise FedQHDError(f"{name}={getattr(self, name):g} is not possible: it must be at least 0 seconds")


def check_open(name: str, host: str, safe: bool) -> None:
    """What other machines can reach is encrypted and knows its clients, or someone has said that it need not."""
    if not (is_loopback(host) or safe):
        raise FedQHDError(
            f"{name}={host!r} is not this machine alone: give --keys, which fedqhd federate keys makes, or --insecure "
            "on a network that you trust"
        )


def how_to_go_on(config: Config) -> str:
    return f"fedqhd federate server --resume --out {config.folder}"


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
    """The server of a federation, from the start of its programs to the summary; prints what it is told meanwhile."""
    waits.check()
    check_server(config)
    check_open("host", host, insecure or keys is not None)
    own = server_keys(keys.absolute(), config.clients) if keys else None
    claim(config, overwrite, resume)
    summary = config.folder / "summary.json"
    if resume and summary.exists():
        return dict(json.loads(summary.read_text()))
    check_port(host, port)
    if not resume:
        clear(config.folder)
    home = (config.folder / "flower").absolute()
    here = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"[{here}]:{port}" if ":" in here else f"{here}:{port}"
    app, log = lay_out(config, home, address, own)
    link = run = None
    try:
        with (home / "superlink.log").open("w") as superlink_log, (home / "flwr.log").open("w") as flwr_log:
            secure = secured(own) if own else ["--insecure"]
            link = start([*SUPERLINK, *secure, "--host", host, "--port", str(port)], home, superlink_log)
            wait_for(link, here, port, home)
            nodes = ""
            if own:
                check_certificate(here, port, own.ca)
                nodes = register(address, own)
            options = {"config": str(home / "settings.toml"), "log": str(log), "resume": resume, "nodes": nodes}
            write_bytes(home / "run.toml", tomli_w.dumps({**options, **waits._asdict()}).encode())
            print(f"listening on {host}:{port}; clients join by fedqhd federate client", flush=True)
            run = start(
                [program("flwr"), "run", str(app), NAME, "--stream", "-c", str(home / "run.toml")], home, flwr_log
            )
            wrong = ""
            for line in follow(log, run):
                if line.startswith(OURS):
                    wrong = line.removeprefix(OURS).strip()
                else:
                    print(line, end="", flush=True)
    finally:
        stop(run)
        stop(link)
    if not summary.exists():
        more = f"the server's program ended before its time, and {home / 'flwr.log'} may say why"
        raise FedQHDError(f"{wrong or more}; go on with: {how_to_go_on(config)}")
    return dict(json.loads(summary.read_text()))


NAME = "fedqhd"
SUPERLINK = (sys.executable, "-m", "fedqhd.deploy.superlink", "--disable-runtime-dependency-installation")


def lay_out(config: Config, home: Path, address: str, keys: ServerKeys | None) -> tuple[Path, Path]:
    """What Flower's programs find in their home: the app, the settings, and where the SuperLink is. (app, log)"""
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
    end = time.monotonic() + START
    while not answers(host, port):
        if link.poll() is not None or time.monotonic() > end:
            raise FedQHDError(f"Flower's SuperLink did not start: {home / 'superlink.log'} says why")
        time.sleep(LOOK)


def follow(log: Path, writer: subprocess.Popen[str]) -> Iterator[str]:
    """The lines of a log as they come, until the program has ended on whose behalf they are written."""
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
            time.sleep(LOOK)


def join(
    server: str,
    client: int,
    state_dir: Path,
    file: str,
    port: int = 0,
    keys: Path | None = None,
    insecure: bool = False,
) -> None:
    """A client of a federation, until its model is trained. It looks for its server for as long as it takes."""
    check_client(file)
    host, server_port = parse_address(server)
    check_open("server", host, insecure or keys is not None)
    own = client_keys(keys.absolute()) if keys else None
    if client < 0:
        raise FedQHDError(f"client={client} is not possible: clients are numbered from 0")
    home = (state_dir / "flower").absolute()
    node = {"partition-id": client, "state-dir": str(state_dir.absolute())}
    if file:
        node["config"] = str(Path(file).absolute())
    write_bytes(home / "node.toml", tomli_w.dumps(node).encode())
    if port:
        check_port("127.0.0.1", port)
    safe = ["--root-certificates", str(own.ca), "--auth-supernode-private-key", str(own.key)] if own else ["--insecure"]
    print(f"client {client}: looking for the server at {server}", flush=True)
    supernode, done, refused = None, False, 0.0
    while not done:
        if own:
            wait_until_safe(host, server_port, own.ca)
        command = [
            program("flower-supernode"), *safe, "--superlink", server, "--host", "127.0.0.1",
            "--port", str(port or free_port()), "--node-config", str(home / "node.toml"),
        ]  # fmt: skip
        try:
            with (home / "node.log").open("w") as log:
                supernode = start(command, home, log)
            for line in follow(home / "node.log", supernode):
                done = done or attend(line, client, state_dir)
                if REFUSED in line:
                    refused = refused or time.monotonic()
                elif CONNECTED in line:
                    refused = 0.0
                # Trained, it stays until its server is gone, which would not look at the last answer of one that left.
                if done and "Connection attempt failed" in line:
                    break
        finally:
            stop(supernode)
        if refused and time.monotonic() > refused + GIVE_UP:
            raise FedQHDError(
                f"server={server!r} refuses client {client}: it does not know its key, or has a node with it"
            )
        if not done:
            why = "the server refuses its key so far" if refused else "the server is gone"
            print(f"client {client}: {why}; looking for it again", flush=True)
            time.sleep(AGAIN)


def wait_until_safe(host: str, port: int, ca: Path) -> None:
    """Until the server answers, with a certificate that is in order."""
    while True:
        try:
            return check_certificate(host, port, ca)
        except OSError:
            time.sleep(AGAIN)


def attend(line: str, client: int, state_dir: Path) -> bool:
    """Pass on what of a node's log concerns a user; whether it says that the client's last message is being sent."""
    if CONNECTED in line:
        print(f"client {client}: connected", flush=True)
    elif line.startswith((f"client {client}:", OURS)):
        print(line, end="", flush=True)
    elif "Sending: evaluate message" in line:
        print(f"client {client}: trained; its model is in {state_dir}/models", flush=True)
        return True
    return False
