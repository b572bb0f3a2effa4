"""`fedqhd watch`: a web page that follows a run, served on the loopback interface only.

The page shows what config.toml, metrics.jsonl and rounds.jsonl in the folder of the run hold. The replay comes from the
newest checkpoint or, once the run has finished, from its models.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedqhd.agents.policy import Policy, load_policy, model_path
from fedqhd.core.alive import is_training
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import checkpoints, read_checkpoint
from fedqhd.core.length import planned
from fedqhd.core.lines import complete, parsed
from fedqhd.core.templates import render
from fedqhd.deploy import settings as deploy
from fedqhd.deploy.guard import LOOPBACK, from_a_page
from fedqhd.engines.local import restore_from
from fedqhd.federation.method import method_of
from fedqhd.gap.measure import run_config
from fedqhd.report.play import play
from fedqhd.runs import rounds_log as rounds
from fedqhd.runs.build import build
from fedqhd.runs.folder import resume_command
from fedqhd.runs.metrics import NAME as METRICS

HOST = "127.0.0.1"
POLL = 0.2
"""Seconds between two looks for a run that has not started yet."""
IDLE = 60.0
"""Seconds after which a connection that asks for nothing is closed."""
FRAMES = 200
"""The longest replay in frames, which is eight seconds."""
CHUNK = 4 << 20
"""The most bytes of a file that one response covers. The page asks again for the rest."""


def lines_after(file: Path, offset: int) -> tuple[list[Any], int]:
    """Read the complete lines of a JSON Lines file that follow a byte offset.

    A file that is shorter than the offset was started anew and is read from its beginning.

    Returns:
        The parsed lines, and the offset of the byte after them; ([], 0) if there is no such file.
    """
    if not file.exists():
        return [], 0
    with file.open("rb") as f:
        f.seek(offset if offset <= file.stat().st_size else 0)
        start = f.tell()
        data = f.read(CHUNK)
    whole = complete(data)
    return parsed(whole), start + len(whole)


class Watched:
    """The folder of a run, and what the page shows of it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = run_config(folder)
        self._clients = cache(lambda: build(self.config))
        self._lock = threading.Lock()
        self._replays: dict[tuple[str, int], bytes] = {}

    def about(self) -> dict[str, Any]:
        """Return the settings that the head of the page shows."""
        c = self.config
        facts = {k: c.get(k) for k in ("env", "method", "setting", "clients", "episodes", "seed")}
        facts["learner"] = method_of(c).learner_name
        return {
            **facts, "run": str(self.folder), "rounds": len(planned(c)), "dims": c.get("dims", ()),
            "resume": self.resume(),
        }  # fmt: skip

    def resume(self) -> str:
        """Return the command that resumes the run if it has stopped."""
        config = self.config.replace(out=str(self.folder))
        federated = (self.folder / deploy.RUN_NAME).exists()
        return deploy.resume_command(config) if federated else resume_command(config)

    def state(self) -> str:
        """Return "finished", "running", or "stopped" if the run is not finished and no process is training it."""
        # A run writes its summary before it releases its lock, so the lock is looked at first.
        if is_training(self.folder):
            return "running"
        return "finished" if (self.folder / "summary.json").exists() else "stopped"

    def data(self, metrics: int, rounds_at: int) -> dict[str, Any]:
        """Return what has been added to metrics.jsonl and rounds.jsonl since these byte offsets."""
        episodes, metrics_end = lines_after(self.folder / METRICS, metrics)
        took, rounds_end = lines_after(self.folder / rounds.NAME, rounds_at)
        return {
            "anew": metrics_end < metrics or rounds_end < rounds_at, "episodes": episodes, "metrics": metrics_end,
            "rounds": took, "roundsAt": rounds_end, "state": self.state(),
            "replay": self.newest(),
        }  # fmt: skip

    def newest(self) -> str:
        """Return a name for the newest policy, which changes when there is a newer one; "" before the first round."""
        if (self.folder / "summary.json").exists():
            return "finished"
        saved = checkpoints(self.folder)
        return saved[0].stem if saved else ""

    def policy(self, client: int) -> Policy:
        """Return a client's greedy policy as of the newest checkpoint or, in a finished run, its model.

        Raises:
            FedQHDError: If there is no such client, or no checkpoint yet.
        """
        saved = read_checkpoint(self.folder)
        if model_path(self.folder, client).exists() and saved is None:
            return load_policy(self.folder, client)
        clients, world = self._clients()
        if saved is None or not 0 <= client < len(clients):
            raise FedQHDError(f"client={client} has no policy yet in {str(self.folder)!r}")
        restore_from(saved.arrays, clients[client])
        return Policy(clients[client].agent.model(), world.scaler, self.config.env, 0.0, self.config.action_repeat)

    def replay(self, client: int) -> bytes:
        """Return a GIF of a client's current greedy policy. The last one is cached; only one is made at a time."""
        with self._lock:
            key = self.newest(), client
            if key not in self._replays:
                with tempfile.TemporaryDirectory() as folder:
                    gif = Path(folder) / "replay.gif"
                    play(self.policy(client), gif, longest=FRAMES)
                    self._replays = {key: gif.read_bytes()}
            return self._replays[key]


def handler(watched: Watched) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers the requests of the page for a run."""
    page = render("ui/templates/watch.html").encode()

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE

        def do_GET(self) -> None:
            foreign = from_a_page({name.lower(): value for name, value in self.headers.items()}, LOOPBACK)
            if foreign:
                self.answer(403, "text/plain", foreign.encode())
                return
            url = urlsplit(self.path)
            asked = {k: int(v[0]) for k, v in parse_qs(url.query).items() if v[0].isdecimal() and len(v[0]) < 16}
            try:
                if url.path == "/":
                    self.answer(200, "text/html; charset=utf-8", page)
                elif url.path == "/about":
                    self.json(watched.about())
                elif url.path == "/data":
                    self.json(watched.data(asked.get("metrics", 0), asked.get("rounds", 0)))
                elif url.path == "/replay.gif":
                    self.answer(200, "image/gif", watched.replay(asked.get("client", 0)))
                else:
                    self.answer(404, "text/plain", b"there is nothing here")
            except (BrokenPipeError, ConnectionResetError):
                pass  # the page was closed
            except Exception as error:  # rendering an environment may fail in any way
                self.answer(404, "text/plain; charset=utf-8", str(error).encode() or type(error).__name__.encode())

        def json(self, value: Any) -> None:
            self.answer(200, "application/json", json.dumps(value).encode())

        def answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header(
                "Content-Security-Policy", "default-src 'self' 'unsafe-inline'; img-src 'self' blob: data:"
            )
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Keep requests out of the terminal."""

    return Handler


def wait_for_run(folder: Path, seconds: float, say: Callable[[str], None]) -> None:
    """Wait until a folder holds a run, or until the given number of seconds has passed; `say` tells the user."""
    end = time.monotonic() + seconds
    told = False
    while not (folder / "config.toml").exists() and time.monotonic() < end:
        if not told:
            say(f"waiting up to {seconds:g} seconds for a run to start in {folder} (Ctrl-C ends it)")
            told = True
        time.sleep(POLL)


def serve(run: str | Path, port: int, wait: float, say: Callable[[str], None]) -> None:
    """Serve the page of a run until interrupted.

    Args:
        run: The folder of the run.
        port: A port on 127.0.0.1, or 0 for any free one.
        wait: How many seconds to wait for the run to start if the folder does not hold one yet.
        say: Called with one sentence when the waiting begins, and with one that has the address of the page.

    Raises:
        FedQHDError: If the folder still holds no run after `wait` seconds, or if the port cannot be used.
    """
    if not 0 <= port < 65536:
        raise FedQHDError(f"port={port} is not possible: it must be from 0 to 65535")
    wait_for_run(Path(run), wait, say)
    watched = Watched(run)
    try:
        server = ThreadingHTTPServer((HOST, port), handler(watched))
    except OSError as error:
        raise FedQHDError(f"port={port} cannot be used ({error.strerror}): choose another, or 0 for any") from error
    with server:
        say(f"watching {run}: http://{HOST}:{server.server_port}/ (Ctrl-C ends it)")
        server.serve_forever()
