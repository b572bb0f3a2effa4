"""Flower's other programs with the secret and the clock of the federation, `python -m fedqhd.deploy.flower NAME ...`.

Flower starts them by name, and `fedqhd federate` puts a folder of scripts before theirs in PATH that start this module.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx

from fedqhd.deploy.clock import use_steady_clock
from fedqhd.deploy.guard import SECRET_HEADER
from fedqhd.deploy.rules import read_rules
from fedqhd.engines.flower import QUIET  # noqa: F401  # before Flower is imported

PROGRAMS = ("flower-superexec", "flwr-serverapp", "flwr-clientapp")
"""The programs that Flower starts by itself."""
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


def main() -> None:
    """Run the program of the given name."""
    name = sys.argv.pop(1)
    sys.argv[0] = name
    rules = read_rules()
    carry_secret(rules.secret)
    use_steady_clock(rules.epoch)
    (entry,) = (e for e in distribution("flwr").entry_points if e.group == "console_scripts" and e.name == name)
    entry.load()()


if __name__ == "__main__":
    main()
