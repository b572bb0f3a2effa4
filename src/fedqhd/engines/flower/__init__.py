"""Clients on other machines, or simulated as such, by Flower. Nothing here knows how a client or its world is made."""

from __future__ import annotations

import os

# Flower and Ray read these when they are first imported: nothing phones home, nothing is installed at run time, and Ray
# without clusters listens on loopback alone (the name of that switch is older than what it does).
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
