"""What the programs of a federation on one machine share: a secret, a clock, and limits for strangers.

The command writes them to a file that only its user can read, and its programs find the file by an environment
variable.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from fedqhd.core.config import Config
from fedqhd.core.files import write_secret
from fedqhd.deploy.guard import LOOPBACK

VARIABLE = "FEDQHD_RULES"
HOME = "flower"
"""The folder in that of a client where Flower keeps its files."""
PIECE = 8 << 20
"""The bytes that any message may have. Flower cuts arrays into pieces of 5 MiB, and its own data are much smaller."""
REPLY = 256 << 20
"""The bytes that the arrays of any reply may have."""
MARGIN = 4
"""How many times the numbers that a round exchanges a reply may hold."""


class Rules(NamedTuple):
    """What the programs of one machine share."""

    secret: str
    epoch: float
    """The time of the federation is `epoch` plus the monotonic clock, which never jumps."""
    names: tuple[str, ...] = LOOPBACK
    """The names by which the port may be addressed; see `guard.from_a_page`."""
    keys: tuple[str, ...] = ()
    """The public keys of the nodes that are served, as they are sent; none if every node is served."""
    most: int = PIECE
    """The largest number of bytes in a request of a node."""
    unpacked: int = REPLY
    """The largest number of bytes in the arrays of a reply."""
    connections: int = 64
    """The largest number of open connections."""
    client: str = ""
    """The number of the client and a name of its folder, of which a node tells the server; "" for a server."""

    def write(self, path: Path) -> None:
        """Write the rules to a file that only its owner can read."""
        write_secret(path, json.dumps(self._asdict()).encode())


def folder_name(home: Path) -> str:
    """Return a random name for the folder of a client, which stays the same when the client is started again."""
    path = home / "name"
    if not path.exists():
        write_secret(path, secrets.token_hex(8).encode())
    return path.read_text()


def new_rules(epoch: float | None = None) -> Rules:
    """Return rules with a new secret, and with the present time of this machine unless an epoch is given."""
    return Rules(secrets.token_urlsafe(32), time.time() - time.monotonic() if epoch is None else epoch)


def read_rules() -> Rules:
    """Read the rules of the command that started this program."""
    found = json.loads(Path(os.environ[VARIABLE]).read_text())
    return Rules(**{**found, "names": tuple(found["names"]), "keys": tuple(found["keys"])})


def limited(rules: Rules, c: Config, n: int, actions: int) -> Rules:
    """Return the rules with the limits of a server: `most`, `unpacked` and `connections`.

    Args:
        rules: Rules without them.
        c: The settings of the run.
        n: Number of state variables.
        actions: Number of actions.
    """
    rows = max([c.get("anchors", 0), *c.get("dims", ())])
    columns = n + max(actions, 1)
    table = MARGIN * 8 * rows * columns
    square = MARGIN * 8 * rows * rows if c.get("exchange") == "statistics" else 0
    return rules._replace(most=PIECE + table, unpacked=REPLY + table + square, connections=most_connections(c.clients))


def most_connections(clients: int) -> int:
    """Return how many connections a server with this number of clients allows, within the limit of the system."""
    wanted = 64 + 8 * clients
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return wanted
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
