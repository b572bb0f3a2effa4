"""Flower's other programs with the secret and the clock of the federation, `python -m fedqhd.deploy.flower NAME ...`.

Flower starts them by name, and `fedqhd federate` puts a folder of scripts before theirs in PATH that start this module.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any, cast

import httpx

from fedqhd.deploy.clock import use_steady_clock
from fedqhd.deploy.guard import SECRET_HEADER
from fedqhd.deploy.rules import read_rules
from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported

PROGRAMS = {
    "flower-superexec": "flwr.supercore.cli",
    "flwr-serverapp": "flwr.superlink.cli",
    "flwr-clientapp": "flwr.supernode.cli",
}
"""The programs that Flower starts by itself, and the package in which each is a module and a function of its name."""
WATCH = 0.5
"""Seconds between two looks at whether the parent of a program lives."""
FOR_PROGRAMS = ("/v1/control/", "/v1/runtime/")
"""Where the requests to which the secret belongs go."""


def write_scripts(folder: Path) -> None:
    """Write a script for each of PROGRAMS to a folder, under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedqhd.deploy.flower {name} "$@"\n')
        script.chmod(0o700)


def carry_secret(secret: str) -> None:
    """Let the HTTP clients of this process send the secret to Flower's services, and nowhere else."""

    def add(request: httpx.Request) -> None:
        if request.url.path.startswith(FOR_PROGRAMS):
            request.headers[SECRET_HEADER] = secret

    class Client(httpx.Client):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.event_hooks["request"].append(add)

    httpx.Client = Client  # type: ignore[misc]


def end_with_parent() -> None:
    """Let this process be killed within a second after its parent has ended, however that ended.

    Without it, a server's program whose SuperLink was killed waits for it without end and keeps the folder of the run.
    The system can tell a process that the thread by which it was started has ended, but not that the process has.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def load(name: str) -> Callable[[], Any]:
    """Return the function that runs one of PROGRAMS, or Flower's command line.

    The packages of PROGRAMS import all their programs, with databases and web servers. A client's program starts anew
    for every message, so it is loaded without them.
    """
    if name not in PROGRAMS:
        from flwr.cli.app import app

        return app
    spec = find_spec(PROGRAMS[name])
    assert spec is not None
    sys.modules[spec.name] = module_from_spec(spec)
    function = name.replace("-", "_")
    return cast(Callable[[], Any], getattr(import_module(f"{spec.name}.{function}"), function))


def main() -> None:
    """Run the program of the given name."""
    end_with_parent()
    name = sys.argv.pop(1)
    sys.argv[0] = name
    rules = read_rules()
    carry_secret(rules.secret)
    use_steady_clock(rules.epoch)
    load(name)()


if __name__ == "__main__":
    main()
