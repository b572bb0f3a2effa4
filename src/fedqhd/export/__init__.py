"""Export of a trained policy that runs without FedQHD: as ONNX, as one Python file or as a C header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedqhd._version import __version__
from fedqhd.agents.policy import Policy, load_policy
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes
from fedqhd.export.c import header
from fedqhd.export.onnx import model
from fedqhd.export.python import script

FORMATS: Mapping[str, Callable[[Policy, str, str], bytes]] = {"onnx": model, "numpy": script, "c": header}
"""For each format, a function of the policy, a sentence about its origin and its name that returns the content of the
file."""


def export(run: str | Path, client: int, format: str, out: str | Path, trust: bool = False) -> Path:
    """Write the policy of one client of a finished run to a file.

    Args:
        run: The folder of the run.
        client: The number of the client.
        format: "onnx", "numpy" (one Python file) or "c" (a C header).
        out: The file to write. The names of a C header begin with the file's name: lander.h has `lander_action`.
        trust: Whether to import code that the run names, even if this user did not make it on this machine.

    Returns:
        The path of the file.

    Raises:
        FedQHDError: If the format is unknown or cannot express the policy.
    """
    if format not in FORMATS:
        raise FedQHDError(f"format={format!r} is unknown: choose from {', '.join(FORMATS)}")
    policy = load_policy(run, client, trust)
    about = f"The greedy policy of client {client} for {policy.env}, exported by FedQHD {__version__}."
    if policy.action_repeat > 1:
        about += f" Keep each action for {policy.action_repeat} steps."
    write_bytes(out, FORMATS[format](policy, about, Path(out).stem))
    return Path(out)
